"""Rotary position embedding: its frequencies, its tables, and the operator that rotates normed heads."""

from services.common.kernels.rope.frequencies import Frequencies, Linear, Llama3, Proportional, Scaling, Yarn
from services.common.kernels.rope.tables import Rotation, RotationTable

__all__ = ["Frequencies", "Linear", "Llama3", "Proportional", "Rotation", "RotationTable", "Scaling", "Yarn"]
