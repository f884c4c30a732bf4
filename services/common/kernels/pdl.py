"""Programmatic dependent launch: a kernel starts while the one before it drains, and waits where it needs its results.

A kernel waits until its predecessor is complete and visible (`await_previous`). It lets its successor start
(`allow_next`) when its own loads are done, because waiting programs slow down working ones. Small kernels do so at
once.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators

import torch
import triton
import triton.language as tl

from services.common.kernels.dispatch import INTERPRETED

_HOPPER = 9


def _supported() -> bool:
    return not INTERPRETED and torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= _HOPPER


PDL = _supported()
EXACT = {"enable_fp_fusion": False}
"""Options of every launch: a multiplication and a sum are one operation where the source says so, nowhere else.

What a compiler contracts depends on what stands around it. A row's bits would then depend on its kernel.
"""
LAUNCH = {**EXACT, **({"launch_pdl": True} if PDL else {})}
"""Options of a launch that takes part."""


@triton.jit
def allow_next(PDL: tl.constexpr) -> None:
    """Let the next kernel of the stream start."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def await_previous(PDL: tl.constexpr) -> None:
    """Wait until the kernel before has finished and all it wrote can be read."""
    if PDL:
        tl.extra.cuda.gdc_wait()
