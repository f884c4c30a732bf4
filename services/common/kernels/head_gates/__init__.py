"""Gates of heads: each head of the mixed rows is multiplied by the softplus of a number of its own."""

from services.common.kernels.dispatch import Operator
from services.common.kernels.head_gates import reference

__all__ = ["gate_heads"]

gate_heads = Operator(reference.gate_heads)
