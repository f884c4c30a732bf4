"""Where bands of two sizes were quicker than equal ones, in whole forwards on an H200.

CTAs start in order, as multiprocessors become free: those that lead start sooner. Where they have more lines, the last
ones end with them. Before a recurrent layer they have fewer, so that its CTAs find room while the product still runs.
"""

from typing import NamedTuple

from services.common.kernels.linear.cuda import Kind


class Uneven(NamedTuple):
    """CTAs that lead, lines of each, and lines of each that follows."""

    leaders: int
    leading: int
    following: int


MEASURED: dict[tuple[int, int, Kind], dict[int, Uneven]] = {
    (2560, 4096, Kind.ADDED): {8: Uneven(76, 32, 8), 16: Uneven(76, 32, 8), 32: Uneven(68, 24, 16)},
    (2560, 9216, Kind.ADDED): {8: Uneven(68, 24, 16), 16: Uneven(100, 24, 8)},
    (2560, 9728, Kind.ADDED): {8: Uneven(68, 24, 16), 16: Uneven(100, 24, 8)},
    (18432, 2560, Kind.GATED): {8: Uneven(52, 160, 128), 16: Uneven(52, 160, 128)},
    (19456, 2560, Kind.GATED): dict.fromkeys((8, 16, 32), Uneven(88, 160, 128)),
    (12352, 2560, Kind.PLAIN): {8: Uneven(32, 64, 112), 16: Uneven(32, 64, 112)},
}
"""By lines and depth of a weight, and what follows its product: by the rows that a kernel is built for."""
