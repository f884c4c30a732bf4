"""Makes draft context of the projection of a target's features: key norms, rotation, and the store."""

from services.common.kernels.dispatch import Operator
from services.common.kernels.store_context import reference

__all__ = ["store_context"]

store_context = Operator(reference.store_context)
