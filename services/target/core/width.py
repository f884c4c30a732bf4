"""What a round is as wide as: a number of rows in a chain, or of nodes in a tree."""

from typing import TypeAlias

Width: TypeAlias = int
"""A chain's is its rows, 1 of a plain round; a tree's is a `Tree`."""


class Tree(int):
    """The nodes of each sequence in a round of trees, its anchor among them: as many rows, and no chain's width.

    A chain is the tree in which each row follows the one before. So what is computed with widths needs no case for
    trees, and what is kept by width keeps both apart.
    """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tree) and int(self) == int(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((Tree, int(self)))

    def __repr__(self) -> str:
        return f"Tree({int(self)})"


def order_of(width: Width) -> tuple[int, bool]:
    """Places widths by their rows, chains before trees of as many."""
    return int(width), isinstance(width, Tree)
