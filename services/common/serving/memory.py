"""Gives memory that was freed back to the system."""

import asyncio
import ctypes


async def give_back_freed_memory(interval_s: float = 5.0) -> None:
    """Trims the C heap again and again; runs until cancelled.

    The C library keeps what large prompts of many threads took. A container's limit counts it although nobody uses it.
    Where the library cannot trim, as musl, this ends at once.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        await asyncio.sleep(interval_s)
        await asyncio.to_thread(trim, 0)
