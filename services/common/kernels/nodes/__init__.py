"""Rows of a round as nodes: (sequence, parent row, token, depth). In a chain each follows the row before.

A node is computed at the position of its depth, sees the context, its ancestors and itself, and is stored by its row
until the round has chosen its tokens. Then what the accepted path has left moves to its positions.

Suffixes: S slots + 1, N blocks of a slot, B rows of the bucket, W nodes of a sequence, its anchor first, K one less.
"""

from services.common.kernels.dispatch import Operator
from services.common.kernels.nodes import reference
from services.common.kernels.nodes.reference import MOST_NODES, Nodes, Tree, first_path, trunk_of, walk

__all__ = ["MOST_NODES", "Nodes", "Tree", "first_path", "keep_path", "read_nodes", "trunk_of", "walk"]

read_nodes = Operator(reference.read_nodes)
keep_path = Operator(reference.keep_path)
