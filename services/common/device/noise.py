"""Counter-based noise: Philox4x32-10 (Salmon et al., "Parallel random numbers", SC 2011).

The noise of a token depends on the request's seed, the absolute position that is being chosen and the token id alone.
So the text is the same in any batch, width and slot (invariant I1). One call serves four neighbouring ids: the counter
is `(position lo, position hi, id >> 2, purpose)`, the word `id & 3`.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Words = NDArray[np.uint64]

PURPOSE_TOKEN = 0
PURPOSE_SYNTHETIC = 1
_ROUNDS = 10
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)


def philox(counter: tuple[Words, Words, Words, Words], key: tuple[Words, Words]) -> tuple[Words, Words, Words, Words]:
    """Return the four 32-bit output words of Philox4x32-10, held in uint64; inputs broadcast against one another."""
    x0, x1, x2, x3 = counter
    k0, k1 = key
    for step in range(_ROUNDS):
        product0, product1 = x0 * _MULTIPLIERS[0], x2 * _MULTIPLIERS[1]
        round0 = (k0 + np.uint64(step * _WEYL[0])) & _LOW
        round1 = (k1 + np.uint64(step * _WEYL[1])) & _LOW
        x0, x2 = (product1 >> _SHIFT) ^ x1 ^ round0, (product0 >> _SHIFT) ^ x3 ^ round1
        x1, x3 = product1 & _LOW, product0 & _LOW
    return x0, x1, x2, x3


def gumbel_array(
    seeds_B: NDArray[np.int64], positions_BW: NDArray[np.int64], vocab: int, dtype: Any = np.float32
) -> NDArray[Any]:
    """Return Gumbel noise [B, W, V] for the tokens being chosen at absolute positions.

    The uniform number `u = ((word >> 9) + 0.5) * 2^-23` is exact in float32 and never 0 or 1; the noise is `-log(-log
    u)`.
    """
    seeds_B11 = seeds_B.astype(np.uint64)[:, None, None]
    positions_BW1 = positions_BW.astype(np.uint64)[:, :, None]
    quads_Q = np.arange((vocab + 3) // 4, dtype=np.uint64)
    purpose = np.full(1, PURPOSE_TOKEN, dtype=np.uint64)
    counter = (positions_BW1 & _LOW, positions_BW1 >> _SHIFT, quads_Q, purpose)
    words = philox(counter, (seeds_B11 & _LOW, seeds_B11 >> _SHIFT))
    uniform_BWQ4 = np.empty((*positions_BW.shape, len(quads_Q), 4), dtype=dtype)
    for index, word in enumerate(words):
        uniform_BWQ4[..., index] = word >> np.uint64(9)
    uniform_BWQ4 += 0.5
    uniform_BWQ4 *= 2.0**-23
    noise = np.log(uniform_BWQ4, out=uniform_BWQ4)
    np.negative(noise, out=noise)
    np.log(noise, out=noise)
    np.negative(noise, out=noise)
    flat_BWV: NDArray[Any] = noise.reshape(*positions_BW.shape, -1)
    return flat_BWV[..., :vocab]


def uniform(seeds_B: Tensor, positions_B: Tensor, purpose: int) -> Tensor:
    """Return a number of [0, 1), float32, for each seed and position [B] of CPU tensors: 24 bits of a word."""
    seeds, positions = seeds_B.numpy().astype(np.uint64), positions_B.numpy().astype(np.uint64)
    counter = (positions & _LOW, positions >> _SHIFT, np.zeros_like(positions), np.full_like(positions, purpose))
    word = philox(counter, (seeds & _LOW, seeds >> _SHIFT))[0]
    return torch.from_numpy((word >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24))


def gumbel(seeds_B: Tensor, positions_BW: Tensor, vocab: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return `gumbel_array` for CPU tensors; seeds are unsigned 64-bit values held in int64."""
    wide = np.float64 if dtype == torch.float64 else np.float32
    return torch.from_numpy(gumbel_array(seeds_B.numpy(), positions_BW.numpy(), vocab, wide))
