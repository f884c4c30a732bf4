"""Rows of the embedding table."""

from services.common.kernels.dispatch import Operator
from services.common.kernels.embedding import reference

__all__ = ["begin_rows", "embedding"]

begin_rows = Operator(reference.begin_rows, told_by=1)
embedding = Operator(reference.embedding, told_by=1)
