"""Angles per position of each pair of a head's dimensions: powers of theta, plain or stretched for longer contexts.

Steps and their order are those of Hugging Face transformers. One rounding of a frequency moves an angle by up to 0.001
at position 30,000, and with it the logits.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Yarn:
    """YaRN (arXiv:2309.00071): slow pairs are interpolated, fast pairs are not, and pairs in between are blended.

    `attention_factor` scales cosines and sines, and so every score by its square.
    """

    factor: float
    original_positions: float
    attention_factor: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True


@dataclass(frozen=True)
class Llama3:
    """Llama 3.1's: pairs whose wave is longer than `original_positions / low_factor` are slowed by `factor`."""

    factor: float
    original_positions: float
    low_factor: float
    high_factor: float


@dataclass(frozen=True)
class Linear:
    """All pairs are slowed by `factor`."""

    factor: float


@dataclass(frozen=True)
class Proportional:
    """The first `pairs` turn as usual, the others not at all; those are slowed by `factor`."""

    pairs: int
    factor: float = 1.0


Scaling = Yarn | Llama3 | Linear | Proportional


def attention_factor(factor: float, mscale: float | None = None, mscale_all_dim: float | None = None) -> float:
    """Return what YaRN scales cosines and sines by when a checkpoint does not say."""

    def grown(by: float) -> float:
        return 0.1 * by * math.log(factor) + 1.0 if factor > 1 else 1.0

    return grown(mscale) / grown(mscale_all_dim) if mscale and mscale_all_dim else grown(1.0)


@dataclass(frozen=True)
class Frequencies:
    """Angle per position [D / 2], in radians, and what cosine and sine are scaled by, all alike or [D / 2]."""

    turns_H: Tensor
    scale: float | Tensor = 1.0

    @classmethod
    def of(
        cls,
        head_dim: int,
        theta: float,
        scaling: Scaling | None = None,
        dtype: torch.dtype = torch.float32,
        turning: int | None = None,
    ) -> "Frequencies":
        """Return the frequencies of heads of `head_dim`, computed in `dtype` on the CPU.

        When only `turning` dimensions turn, the pairs of the others come last, have frequency 0, and are not scaled.
        """
        if turning is not None:
            own, rest = cls.of(turning, theta, scaling, dtype), (0, (head_dim - turning) // 2)
            scale_H = torch.nn.functional.pad(own.turns_H.new_ones(turning // 2) * own.scale, rest, value=1.0)
            return cls(torch.nn.functional.pad(own.turns_H, rest), scale_H)
        powers_H = theta ** (torch.arange(0, head_dim, 2, dtype=dtype) / head_dim)
        if isinstance(scaling, Yarn):
            return cls(_yarn(powers_H, head_dim, theta, scaling), scaling.attention_factor)
        turns_H = 1.0 / powers_H
        if isinstance(scaling, Linear):
            return cls(turns_H / scaling.factor)
        if isinstance(scaling, Proportional):
            still_H = torch.arange(head_dim // 2) >= scaling.pairs
            return cls((turns_H / scaling.factor).masked_fill(still_H, 0.0))
        return cls(turns_H if scaling is None else _llama3(turns_H, scaling))


def _yarn(powers_H: Tensor, head_dim: int, theta: float, yarn: Yarn) -> Tensor:
    def pair_that_turns(times: float) -> float:
        return head_dim * math.log(yarn.original_positions / (times * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair_that_turns(yarn.beta_fast), pair_that_turns(yarn.beta_slow)
    if yarn.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001
    kept_H = 1 - ((torch.arange(head_dim // 2, dtype=powers_H.dtype) - low) / (high - low)).clamp(0, 1)
    return 1.0 / (yarn.factor * powers_H) * (1 - kept_H) + 1.0 / powers_H * kept_H


def _llama3(turns_H: Tensor, stretch: Llama3) -> Tensor:
    waves_H = 2 * math.pi / turns_H
    longest = stretch.original_positions / stretch.low_factor
    shortest = stretch.original_positions / stretch.high_factor
    slowed_H = torch.where(waves_H > longest, turns_H / stretch.factor, turns_H)
    kept_H = (stretch.original_positions / waves_H - stretch.low_factor) / (stretch.high_factor - stretch.low_factor)
    blended_H = (1 - kept_H) * slowed_H / stretch.factor + kept_H * slowed_H
    between_H = (waves_H >= shortest) & (waves_H <= longest)
    return torch.where(between_H, blended_H, slowed_H)
