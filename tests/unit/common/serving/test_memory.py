"""Memory that a service freed goes back to the system."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]
SCRIPT = """
import asyncio, ctypes, re
from pathlib import Path
from services.common.serving.memory import give_back_freed_memory

BLOCKS, BLOCK_BYTES = 1024, 64 * 1024  # blocks so small that the C library takes none of them from the system by itself


def resident_kib():
    return int(re.search(r"RssAnon:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])


async def main():
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    before = resident_kib()
    blocks, between = [], []
    for _ in range(BLOCKS):
        blocks.append(libc.malloc(BLOCK_BYTES))
        between.append(libc.malloc(2048))  # lives on, so that the heap has no free end
    for block in blocks:
        ctypes.memset(block, 1, BLOCK_BYTES)
    for block in blocks:
        libc.free(block)
    kept = resident_kib() - before
    assert kept > BLOCKS * BLOCK_BYTES // 2048, "the C library gave it back by itself: this test shows nothing"
    trimming = asyncio.create_task(give_back_freed_memory(0.01))
    async with asyncio.timeout(10):
        while resident_kib() - before > kept // 4:
            await asyncio.sleep(0.01)
    trimming.cancel()


asyncio.run(main())
"""


def test_the_heap_between_live_blocks_is_given_back() -> None:
    """In a process of its own: the heap of another one may have room, and then nothing is taken from the system."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
