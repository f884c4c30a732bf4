"""Gives memory that was freed back to the system."""

import asyncio
import ctypes

M_ARENA_MAX, M_MMAP_THRESHOLD = -8, -3
ARENAS = 2
OWN_BYTES = 1 << 18
"""Blocks from here on are mapped, and go back to the system as soon as they are freed."""


def share_arenas() -> None:
    """Has all threads share two heaps of the C library, before there are any.

    By default each thread has one, and what is left in it between freed blocks cannot be given back. Large blocks have
    no part in them: by default one that was freed brings all up to its size into the heaps. Where the library has no
    such option nothing happens.
    """
    limit = getattr(ctypes.CDLL(None), "mallopt", None)
    if limit is not None:
        limit(M_ARENA_MAX, ARENAS)
        limit(M_MMAP_THRESHOLD, OWN_BYTES)


async def give_back_freed_memory(interval_s: float = 5.0) -> None:
    """Trims the C heap again and again; runs until cancelled.

    The C library keeps what large prompts of many threads took. A container's limit counts it although nobody uses it.
    Where the library cannot trim, as musl, this ends at once.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        await asyncio.sleep(interval_s)
        await asyncio.to_thread(trim, 0)
