"""The best token, or the best few, of every row of logits, or of their product with the head."""

from services.common.kernels.argmax_token import reference
from services.common.kernels.argmax_token.columns import columns_at_once
from services.common.kernels.dispatch import Operator

__all__ = ["argmax_of_product", "argmax_token", "columns_at_once", "top_of_product"]

argmax_token = Operator(reference.argmax_token)
argmax_of_product = Operator(reference.argmax_of_product)
top_of_product = Operator(reference.top_of_product)
