"""The noise of draws, as `services/common/device/noise.py` defines it, within a kernel."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

import triton
import triton.language as tl
from triton.language.extra import libdevice

from services.common.kernels.dispatch import INTERPRETED

_EXACT = tl.constexpr(INTERPRETED)


@triton.jit
def gumbel_of(seed, position, quad):
    """Return the noise [.., 4 n] of the tokens of `quad` [.., n], four of each, which share a call."""
    w0, w1, w2, w3 = _words(seed, position, quad)
    return _noise_of(tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3)))


@triton.jit
def gumbel_at(seed, position, token):
    """Return the noise of tokens in any order, each of which takes a call."""
    w0, w1, w2, w3 = _words(seed, position, (token // 4).to(tl.uint32))
    place = token % 4
    return _noise_of(tl.where(place < 2, tl.where(place == 0, w0, w1), tl.where(place == 2, w2, w3)))


@triton.jit
def _words(seed, position, quad):
    zero = tl.zeros_like(quad)
    low = zero + (position & 0xFFFFFFFF).to(tl.uint32)
    high = zero + (position >> 32).to(tl.uint32)
    return tl.philox(seed, low, high, quad, zero)


@triton.jit
def _noise_of(word):
    uniform = ((word >> 9).to(tl.float32) + 0.5) * 1.1920928955078125e-07
    # The inner logarithm, of a number close to one, must be exact; the outer one may be off in its last bits.
    return -_quick_log(-tl.log(uniform))


@triton.jit
def _quick_log(x):
    """Return the natural logarithm to within 2^-22, absolute near one and relative elsewhere."""
    if _EXACT:
        return tl.log(x)
    return libdevice.fast_logf(x)
