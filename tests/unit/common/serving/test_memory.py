"""Memory that a service freed goes back to the system."""

import asyncio
import ctypes
import re
from pathlib import Path

import pytest

from services.common.serving.memory import give_back_freed_memory

BLOCKS, BLOCK_BYTES = 1024, 64 * 1024  # blocks so small that the C library takes none of them from the system by itself


def _resident_kib() -> int:
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


@pytest.mark.asyncio
async def test_the_heap_between_live_blocks_is_given_back() -> None:
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    before = _resident_kib()
    blocks, between = [], []
    for _ in range(BLOCKS):
        blocks.append(libc.malloc(BLOCK_BYTES))
        between.append(libc.malloc(2048))  # lives on, so that the heap has no free end
    for block in blocks:
        ctypes.memset(block, 1, BLOCK_BYTES)
    for block in blocks:
        libc.free(block)
    kept = _resident_kib() - before
    trimming = asyncio.create_task(give_back_freed_memory(0.01))
    async with asyncio.timeout(10):
        while _resident_kib() - before > kept // 4:
            await asyncio.sleep(0.01)
    trimming.cancel()
    for each in between:
        libc.free(each)
    assert kept > BLOCKS * BLOCK_BYTES // 2048, "the C library gave it back by itself: this test shows nothing"
