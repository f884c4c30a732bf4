"""What the products in CUDA C++ share: the ring of stages, and the arithmetic that ends a product."""

from enum import IntEnum


class Kind(IntEnum):
    """What follows a product: its norm alone, SwiGLU of its halves, the sum with a stream, or that it gates rows.

    Of BEST only each row's best number of a tile is left, and its line. SCORED leaves both, and all results.
    """

    PLAIN = 0
    GATED = 1
    ADDED = 2
    GATES = 3
    BEST = 4
    SCORED = 5
