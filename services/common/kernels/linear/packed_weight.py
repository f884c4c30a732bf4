"""Weights as their file has them, in eight or four bits with scales, that mean numbers of bfloat16.

Kernels widen codes in registers (`packed/`) or whole weights into memory; both give the numbers that `widened` returns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

GROUP = 128
"""Inputs that share a scale of a line where it has more than one."""
ROW_BYTES = 128
"""Bytes of a line whose codes lie in an order of their own."""
_E4M3, _INT4 = 8, 4
_MOST_SHARED = 128
"""Lines that are looked at for a common scale."""
LARGEST = 2.0**7
"""Scales of e4m3 are below it: kernels multiply them by 2^120."""
_MOST_ZERO = 16
"""Zero points are up to it: kernels take them as bits of bfloat16, times sixteen too."""
_LEAST_FOUR, _LARGEST_FOUR = 2.0**-110, 2.0**11
"""Scales of four bits are between them, or zero: so they are numbers of bfloat16 as kernels raise them, and what they
scale is, too."""
_BLOCK = 128
_MOST_E4M3 = 448.0
_AT_ONCE = 2048


@dataclass(frozen=True)
class PackedWeight:
    """A weight [F, D] of numbers of `dtype`: codes of `bits` in the order in which lanes take them, and scales.

    A row of `scale_GL` has a scale for each `1 << shift` lines; there is one row for each 128 inputs, or one for all.
    Scales of e4m3 are float32, and with `short` numbers of bfloat16. Those of four bits are int32: the upper half is a
    number of float16, or with `short` of bfloat16, and the lower one a zero point. They are `fused` where such a number
    times its zero point is one of bfloat16, too. With `beside` the weight has its numbers too once it lies on its
    device: many rows are multiplied by these.
    """

    codes_FB: Tensor
    scale_GL: Tensor
    shift: int
    short: bool
    dtype: torch.dtype
    bits: int = _E4M3
    beside: bool = False
    numbers_FD: Tensor | None = None
    fused: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs and depth."""
        outputs, size = self.codes_FB.shape
        return outputs, size * 8 // self.bits

    @property
    def device(self) -> torch.device:
        """Where it lies."""
        return self.codes_FB.device

    @property
    def nbytes(self) -> int:
        """Of codes and scales, and of the numbers beside."""
        numbers = 0 if self.numbers_FD is None else self.numbers_FD.nbytes
        return self.codes_FB.nbytes + self.scale_GL.nbytes + numbers

    def __len__(self) -> int:
        """Outputs."""
        return len(self.codes_FB)

    def to(self, device: torch.device) -> "PackedWeight":
        """The same weight elsewhere, where it is used."""
        moved = replace(self, codes_FB=self.codes_FB.to(device), scale_GL=self.scale_GL.to(device))
        return replace(moved, numbers_FD=moved.widened()) if self.beside else moved

    def each(self, change: Callable[[Tensor], Tensor]) -> "PackedWeight":
        """The weight with its lines changed: `change` gets the codes, and then the scales of each line."""
        return self._of(change(self.codes_FB), change(self._scale_FG()))

    def joins(self, other: object) -> bool:
        """Whether lines of another weight may stand beside these."""
        own = self.bits, self.short, self.beside
        return isinstance(other, PackedWeight) and (other.bits, other.short, other.beside) == own

    def joined(self, others: Sequence["PackedWeight"]) -> "PackedWeight":
        """The lines of this weight and of others; of scales for all inputs each 128 get a copy where some differ."""
        parts, scales = [self, *others], [one._scale_FG() for one in (self, *others)]
        groups = max(scale.shape[1] for scale in scales)
        scale_FG = torch.cat([scale.expand(len(scale), groups) for scale in scales])
        return self._of(torch.cat([one.codes_FB for one in parts]), scale_FG)

    def widened(self) -> Tensor:
        """The numbers [F, D]: codes less zero points, times scales in float32, rounded to bfloat16 once, as `dtype`."""
        (outputs, depth), scale_FG, parts = self.shape, self._scale_FG(), []
        for first in range(0, outputs, _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            codes_FB = self.codes_FB[part]
            number_FD = numbers(codes_FB if self.bits == _INT4 else _unmixed(codes_FB), self.bits)
            number_FGD, scale_FG1 = number_FD.view(len(number_FD), scale_FG.shape[1], -1), scale_FG[part][..., None]
            if self.bits == _INT4:
                number_FGD, scale_FG1 = number_FGD - (scale_FG1 & 0xFFFF), _upper(scale_FG1, self.short)
            parts.append((number_FGD * scale_FG1).bfloat16().view(-1, depth))
        return torch.cat(parts).to(self.dtype)

    def _of(self, codes_FB: Tensor, scale_FG: Tensor) -> "PackedWeight":
        """Return such a weight with as few scales as say the same."""
        groups = scale_FG.shape[1]
        if groups > 1 and torch.equal(scale_FG, scale_FG[:, :1].expand(-1, groups)):
            scale_FG = scale_FG[:, :1]
        shift = shared_lines(scale_FG)
        scale_GL = scale_FG[:: 1 << shift].t().contiguous()
        weight = PackedWeight(codes_FB, scale_GL, shift, self.short, self.dtype, self.bits, self.beside)
        weight = replace(weight, fused=self.bits == _INT4 and self.short and _fuses(scale_GL))
        return weight if self.numbers_FD is None else replace(weight, numbers_FD=weight.widened())

    def _scale_FG(self) -> Tensor:
        return self.scale_GL.repeat_interleave(1 << self.shift, 1).t()


@dataclass(frozen=True)
class Codes:
    """What a format gives: codes [F, D], each line's scales, float32, [F, D / 128] or [F, 1], and zero points alike.

    Codes with zero points are of four bits, uint8 each; others are e4m3.
    """

    codes_FD: Tensor
    scale_FG: Tensor
    zero_FG: Tensor | None = None


def packed(codes: Codes, dtype: torch.dtype) -> PackedWeight | None:
    """Return a weight as kernels take it; None where they do not: sizes are odd, or scales have too many digits."""
    (outputs, depth), scale_FG, bits = codes.codes_FD.shape, codes.scale_FG, _E4M3 if codes.zero_FG is None else _INT4
    short = torch.equal(scale_FG.bfloat16().float(), scale_FG)
    row = ROW_BYTES * 8 // bits
    if outputs % 16 or depth % row or scale_FG.shape[1] not in (1, depth // GROUP):
        return None
    if codes.zero_FG is None:
        if not bool((scale_FG.abs() < LARGEST).all()):
            return None
        table_FG = scale_FG
    else:
        size_FG = scale_FG.abs()
        if not bool(((size_FG < _LARGEST_FOUR) & ((size_FG >= _LEAST_FOUR) | (size_FG == 0))).all()):
            return None
        if not (short or torch.equal(scale_FG.half().float(), scale_FG)) or int(codes.zero_FG.max()) > _MOST_ZERO:
            return None
        number_FG = scale_FG.bfloat16() if short else scale_FG.half()
        table_FG = (number_FG.view(torch.int16).int() << 16) | codes.zero_FG.int()
    dealt_FR = dealt(codes.codes_FD, bits)
    dealt_FR = dealt_FR[..., ::2] | dealt_FR[..., 1::2] << 4 if bits == _INT4 else _mixed(dealt_FR)
    least = PackedWeight(codes.codes_FD, table_FG, 0, short, dtype, bits)
    return least._of(dealt_FR.reshape(outputs, -1), table_FG.expand(outputs, -1))


def dealt(codes_FD: Tensor, bits: int = _E4M3) -> Tensor:
    """Return codes in the order in which lanes take them, uint8 [F, parts, codes of a part]."""
    row = ROW_BYTES * 8 // bits
    return codes_FD.view(torch.uint8).reshape(len(codes_FD), -1, row)[..., _order(bits).to(codes_FD.device)]


def rounded_to_eight(weight_FD: Tensor) -> PackedWeight | None:
    """Return the nearest weight in e4m3 with bfloat16 scales of blocks of 128 lines and inputs; None as `packed`."""
    codes = nearest_codes(weight_FD)
    return None if codes is None else packed(codes, weight_FD.dtype)


def nearest_codes(weight_FD: Tensor) -> Codes | None:
    """Return those of `rounded_to_eight`; None where blocks are cut."""
    outputs, depth = weight_FD.shape
    if outputs % _BLOCK or depth % _BLOCK:
        return None
    blocks = weight_FD.view(outputs // _BLOCK, _BLOCK, depth // _BLOCK, _BLOCK).float()
    scale = (blocks.abs().amax((1, 3), keepdim=True) / _MOST_E4M3).bfloat16().float()
    codes = (blocks / scale.clamp(min=torch.finfo(torch.float32).tiny)).clamp(-_MOST_E4M3, _MOST_E4M3)
    codes_FD = codes.to(torch.float8_e4m3fn).view(outputs, depth)
    scale_FG = scale.view(outputs // _BLOCK, -1).repeat_interleave(_BLOCK, 0)
    return Codes(codes_FD, scale_FG)


def rounded_to_four(
    weight_FD: Tensor, symmetric: bool = True, kind: torch.dtype = torch.bfloat16
) -> PackedWeight | None:
    """Return a weight in four bits near to this one, with scales of 128 inputs in a type; None as `packed`."""
    outputs, depth = weight_FD.shape
    if depth % GROUP:
        return None
    groups = weight_FD.view(outputs, -1, GROUP).float()
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    top = torch.maximum(low.abs(), high.abs())
    scale = ((top / 7 if symmetric else (high - low) / 15).clamp(min=1e-6)).to(kind).float()
    zero = torch.full_like(low, 8) if symmetric else (-low / scale).round().clamp(0, 15)
    codes_FD = ((groups / scale).round() + zero).clamp(0, 15).to(torch.uint8).view(outputs, depth)
    return packed(Codes(codes_FD, scale[..., 0], zero[..., 0].to(torch.uint8)), weight_FD.dtype)


def numbers(codes_FB: Tensor, bits: int = _E4M3) -> Tensor:
    """Return the numbers [F, D] of codes in the order of lanes, float32."""
    lines = len(codes_FB)
    if bits == _INT4:
        codes_FB = torch.stack((codes_FB & 15, codes_FB >> 4), -1).flatten(1)
    row = ROW_BYTES * 8 // bits
    codes_FD = codes_FB.view(lines, -1, row)[..., _order(bits).argsort().to(codes_FB.device)].view(lines, -1)
    return codes_FD.float() if bits == _INT4 else codes_FD.view(torch.float8_e4m3fn).float()


def _mixed(codes: Tensor) -> Tensor:
    """Mix bits of two codes of e4m3 in half a word, so that kernels widen them by as few instructions as can be.

    The second has its bits where those of bfloat16 are: its sign is the highest, and the others end with bit 4. Of the
    first the lower half is the lowest. What is left of it ends with bit 12, and its sign stands below, so that both
    are four places away.
    """
    first, second = codes[..., ::2].to(torch.int16), codes[..., 1::2].to(torch.int16)
    of_first = (first & 0x0F) | (first & 0x70) << 8 | (first & 0x80) << 4
    return (of_first | (second & 0x7F) << 4 | (second & 0x80) << 8).view(torch.uint8)


def _unmixed(codes: Tensor) -> Tensor:
    """Return what `_mixed` was given."""
    halves = codes.view(torch.int16)
    first = (halves & 0x0F) | (halves >> 8 & 0x70) | (halves >> 4 & 0x80)
    second = (halves >> 4 & 0x7F) | (halves >> 8 & 0x80)
    return torch.stack((first, second), -1).flatten(-2).to(torch.uint8)


def _fuses(table: Tensor) -> bool:
    """Whether each number of bfloat16 times its zero point is one of bfloat16."""
    less = _upper(table, short=True) * (table & 0xFFFF)
    return torch.equal(less.bfloat16().float(), less)


def _upper(table: Tensor, short: bool) -> Tensor:
    """Return the numbers in the upper halves of scales."""
    return (table >> 16).to(torch.int16).view(torch.bfloat16 if short else torch.float16).float()


def shared_lines(scale_FG: Tensor) -> int:
    """Return how often lines may be halved and still have one scale a part of neighbours."""
    size, shift = _MOST_SHARED, _MOST_SHARED.bit_length() - 1
    while size > 1:
        if len(scale_FG) % size == 0:
            parts = scale_FG.reshape(-1, size, scale_FG.shape[1])
            if torch.equal(parts, parts[:, :1].expand_as(parts)):
                return shift
        size, shift = size // 2, shift - 1
    return 0


@cache
def _order(bits: int) -> Tensor:
    """Return the input of each code of a swizzled row; of four bits the lower half of a byte comes first.

    Lane c of four reads sixteen bytes at a time, of each half of the row. A word of these is for an instruction of
    sixteen inputs, or of four bits for two: inputs 2c, 2c + 8 and their right neighbours. Of e4m3 the second codes of
    half words (`_mixed`) are the first two, of four bits the lower halves of bytes; a second instruction has the upper
    byte of half words.
    """
    at = torch.arange(ROW_BYTES * 8 // bits)
    byte, later = (at, at % 4 % 2 == 0) if bits == _E4M3 else (at // 2, at % 2 == 1)
    lane, half, word, place = byte // 32, byte // 16 % 2, byte // 4 % 4, byte % 4
    sixteen = half * 4 + word if bits == _E4M3 else half * 8 + word * 2 + place % 2
    return 16 * sixteen + 2 * lane + place // 2 + torch.where(later, 8, 0)
