"""Rotary position embedding: its tables, and what turns normed heads."""

from services.common.kernels.rope.tables import Rotation, RotationTable

__all__ = ["Rotation", "RotationTable"]
