"""Which candidates of a block become the nodes of a tree: those whose paths have the largest products of probabilities.

Suffixes: B sequences, K positions of the block, P candidates of the position before, C candidates of a position.
"""

from services.common.kernels.choose_nodes import reference
from services.common.kernels.choose_nodes.reference import ABSENT
from services.common.kernels.dispatch import Operator

__all__ = ["ABSENT", "choose_nodes"]

choose_nodes = Operator(reference.choose_nodes)
