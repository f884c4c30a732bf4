"""One thread that polls a flag.

A graph takes longer to start behind a wait of the stream than a kernel takes to start within a graph. So this wait is
the first kernel of the graph.

It reads one word again and again from L2, and takes one warp of one multiprocessor. There it asks for as much shared
memory as there is, though it uses none. The rest would be L1, and another division of a multiprocessor may
wait for what runs there. A CTA of the other process that needs nearly all shared memory found no room otherwise.
"""

import triton
import triton.language as tl
from torch import Tensor

from services.common.kernels.cuda_program import want_shared_memory
from services.common.kernels.dispatch import INTERPRETED


def wait_flag(flags: Tensor, stamp_2: Tensor, word: int, limit_s: float) -> None:
    """Hold what follows until the flag has reached the round, or for `limit_s`; the interpreter has no clock."""
    assert flags.is_contiguous(), "flags must be contiguous"
    limit_ns = 0 if INTERPRETED else int(limit_s * 1e9)
    kernel = _wait_kernel[(1,)](flags, stamp_2, WORD=word, GENERATIONS=len(flags) // 2, LIMIT_NS=limit_ns, num_warps=1)
    if not INTERPRETED:
        want_shared_memory(kernel)


@triton.jit
def _wait_kernel(
    flags_ptr, stamp_ptr, WORD: tl.constexpr, GENERATIONS: tl.constexpr, LIMIT_NS: tl.constexpr
):  # fmt: skip
    number = tl.load(stamp_ptr)
    flag_ptr = flags_ptr + tl.load(stamp_ptr + 1) % GENERATIONS * 2 + WORD
    start = tl.extra.cuda.globaltimer() if LIMIT_NS > 0 else 0
    # Volatile: another process's stream writes it meanwhile.
    flag = tl.load(flag_ptr, volatile=True)
    while flag < number:
        flag = tl.load(flag_ptr, volatile=True)
        if LIMIT_NS > 0:
            # Under MPS the kernels of a killed process run on, so no kernel may wait for ever.
            flag = tl.where(tl.extra.cuda.globaltimer() - start > LIMIT_NS, number, flag)
