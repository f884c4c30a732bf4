"""Which rounds the kernel for a row that is alone takes."""

from services.common.kernels.span_attention.cut import PROCESSORS

CTAS = 8
"""Those of a cluster, which have a K/V head together."""
_SIZE, _MOST_GROUP = 128, 8


def takes_row(group: int, kv_heads: int, size: int, short: bool) -> bool:
    """Whether it takes the only row of the only sequence, of so many query heads a K/V head.

    Tiles of long contexts come sooner to twice as many programs, which merge what they leave by a launch of its own.
    """
    return short and size == _SIZE and group <= _MOST_GROUP and kv_heads * CTAS <= PROCESSORS
