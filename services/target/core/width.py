"""What a round is as wide as: a number of rows in a chain, of nodes in a tree, or of rows in chains of any lengths."""

from typing import TypeAlias

Width: TypeAlias = int
"""A chain's is its rows, 1 of a plain round; a tree's is a `Tree`, that of chains of any lengths is `Ragged`."""


class Tree(int):
    """The nodes of each sequence in a round of trees, its anchor among them: as many rows, and no chain's width.

    A chain is the tree in which each row follows the one before. So what is computed with widths needs no case for
    trees, and what is kept by width keeps both apart. There is one object for each number, which is quick to find.
    """

    def __new__(cls, nodes: int) -> "Tree":
        """The tree of so many nodes."""
        found = _TREES.get(count := int(nodes))
        return _TREES.setdefault(count, super().__new__(cls, count)) if found is None else found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tree) and int(self) == int(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return ~int(self)

    def __repr__(self) -> str:
        return f"Tree({int(self)})"


_TREES: dict[int, Tree] = {}


class Ragged(int):
    """Chains of at most so many rows each, which have `rows` together: each request has what it is worth.

    A sequence has a multiple of `grain` rows, and at least one grain: such pieces are what attention takes apart.
    """

    rows: int
    grain: int

    def __new__(cls, most: int, rows: int, grain: int) -> "Ragged":
        """A round of `rows` rows, `grain` of a piece, `most` of a sequence; whole pieces all."""
        assert rows % grain == 0 == most % grain, "sequences have whole pieces"
        width = super().__new__(cls, most)
        width.rows, width.grain = rows, grain
        return width

    @property
    def pieces(self) -> int:
        """How many there are in a round."""
        return self.rows // self.grain

    def fits(self, sequences: int) -> bool:
        """Whether each of so many has a piece, and not all of them can have the most."""
        return sequences * self.grain < self.rows < sequences * int(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ragged) and order_of(self) == order_of(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((Ragged, order_of(self)))

    def __repr__(self) -> str:
        return f"Ragged({int(self)}, {self.rows}, {self.grain})"


def order_of(width: Width) -> tuple[int, int, int, int]:
    """Places widths by their rows, chains before trees of as many, and both before chains of any lengths."""
    if isinstance(width, Ragged):
        return int(width), 2, width.rows, width.grain
    return int(width), int(isinstance(width, Tree)), 0, 0


def evenly(width: Ragged, sequences: int) -> tuple[int, ...]:
    """Return the rows of each of so many sequences, as alike as they can be."""
    each, more = divmod(width.pieces, sequences)
    counts = (each + (place < more) for place in range(sequences))
    return tuple(width.grain * min(count, int(width) // width.grain) for count in counts)
