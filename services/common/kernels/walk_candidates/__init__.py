"""Drafts that are chosen one after another among each position's candidates, by a score of two tokens and a row.

Suffixes: B sequences, K positions, C candidates of a position, V tokens, R the rank of codes.
"""

from services.common.kernels.dispatch import Operator
from services.common.kernels.walk_candidates import reference

__all__ = ["walk_candidates"]

walk_candidates = Operator(reference.walk_candidates)
