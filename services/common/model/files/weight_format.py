"""What a format of packed weights is: names of tensors that hold a weight, and the bfloat16 numbers that they mean.

A format defines numbers: codes times scales, computed in float32 and rounded once to bfloat16. They are the weights of
the model, whatever type then computes with them, so a packed checkpoint gives the text of its twin saved in bfloat16.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from services.common.kernels.linear.packed_weight import Codes
from services.common.model.fields.errors import ModelError
from services.common.model.fields.fields import Fields

Shape = tuple[int, ...]
FLOATS = frozenset({torch.float64, torch.float32, torch.bfloat16, torch.float16})
INTEGERS = frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8})
SCALES = frozenset({torch.float32, torch.bfloat16, torch.float16})
"""Types of scales that are plain numbers."""
EXPONENTS = frozenset({torch.uint8, torch.float8_e8m0fnu})
"""Types of scales that are powers of two: the exponent plus 127."""

PARTS = ("qweight", "qzeros", "scales", "g_idx", "weight_packed", "weight_scale", "weight_scale_inv", "weight_scale_2")
"""Ends of names of tensors that packed weights are known by, of any format."""


AUTO_ROUND = frozenset({
    "act_bits", "act_data_type", "act_dynamic", "act_group_size", "act_sym", "amp", "autoround_version", "batch_size",
    "data_type", "enable_minmax_tuning", "enable_norm_bias_tuning", "enable_quanted_input", "gradient_accumulate_steps",
    "iters", "low_gpu_mem_usage", "lr", "minmax_lr", "model_free", "nsamples", "scale_dtype", "seqlen", "super_bits",
    "super_group_size", "to_quant_block_names",
})  # fmt: skip
"""What AutoRound says of its work in files of other formats. Rows are not rounded here, so theirs says nothing."""


class FormatError(ModelError):
    """The tensors of a weight are not what the format says; the message names no file."""


@dataclass(frozen=True)
class TensorPart:
    """One of the tensors that hold a weight; without it there is no weight, unless `optional`."""

    shape: Shape
    dtypes: frozenset[torch.dtype]
    optional: bool = False


class Format(Protocol):
    """How the weights of one checkpoint are packed."""

    @property
    def summary(self) -> str:
        """Format, bits and scales, for people."""
        ...

    @property
    def ends(self) -> frozenset[str]:
        """Last parts of the names of all tensors that the format may add beside, or in place of, a `weight`."""
        ...

    @property
    def idle(self) -> frozenset[str]:
        """Those of `ends` that describe what is not computed here, and are left alone."""
        ...

    def parts(self, prefix: str, shape: Shape) -> Mapping[str, TensorPart]:
        """Return the tensors of the weight [F, D] called `prefix`, by the last part of their names.

        Raises:
            FormatError: a weight of this shape cannot be packed so.
        """
        ...

    def widened(self, prefix: str, shape: Shape, parts: Mapping[str, Tensor]) -> Tensor:
        """Return the weight [F, D], bfloat16, of those tensors.

        Raises:
            FormatError: the tensors contradict one another or the configuration.
        """
        ...


@runtime_checkable
class WholeFormat(Format, Protocol):
    """One some of whose weights are whole numbers with a scale a line, for rows of whole numbers."""

    @property
    def all_whole(self) -> bool:
        """Whether all that the configuration tells of are such."""
        ...

    def whole(self, prefix: str, shape: Shape, parts: Mapping[str, Tensor]) -> tuple[Tensor, Tensor] | None:
        """Return the codes [F, D], int8, and scales [F], float32, of those tensors; None if a weight is another."""
        ...


@runtime_checkable
class CodedFormat(Format, Protocol):
    """One some of whose weights are codes with scales of lines and of 128 inputs, which kernels widen."""

    @property
    def block(self) -> tuple[int, int] | None:
        """Lines and columns that share a scale of codes of eight bits; None where weights differ or have others."""
        ...

    @property
    def code_bits(self) -> int:
        """Bits of such codes; 0: all weights are others."""
        ...

    def codes(self, prefix: str, shape: Shape, parts: Mapping[str, Tensor]) -> Codes | None:
        """Return them; None if a weight's are others.

        Raises:
            FormatError: as `widened`.
        """
        ...


@dataclass(frozen=True)
class Kind:
    """A row of the table in docs/use.md: what `quantization_config` says, which files are so, and what is refused.

    `examples` are such objects as published files have them; the bits of the table are theirs.
    """

    config: str
    files: str
    refused: str = ""
    examples: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Beside:
    """A file beside config.json that older writers put `quantization_config` into.

    `within` is the key that holds it; `words` are the keys that it calls otherwise, and what they are here.
    """

    file: str
    within: str = ""
    words: tuple[tuple[str, str], ...] = ()


class FormatFile(Protocol):
    """The contents of a format's file."""

    METHOD: str
    """As `quant_method` of config.json names it."""

    KINDS: tuple[Kind, ...]
    """Rows of the table in docs/use.md."""

    BESIDE: Beside | None
    """Where the configuration may stand apart."""

    def read(self, fields: Fields) -> Format:
        """Read the object `quantization_config`; every key must be understood."""
        ...


def blocks(length: int, size: int) -> int:
    """Return how many blocks of a size hold a length; the last may be shorter."""
    return -(-length // size)


def whole(prefix: str, length: int, size: int, what: str) -> int:
    """Return how often a size goes into a length.

    Raises:
        FormatError: something is left.
    """
    if length % size:
        raise FormatError(f"{prefix}: {length} {what} do not divide into parts of {size}")
    return length // size


_STARTS = ("language_model.model.", "model.language_model.", "language_model.", "model.", "")
"""How names of a text model's modules begin, in files with images and without, by versions of transformers."""


def spellings(prefix: str) -> tuple[str, ...]:
    """Return a module's name in a file, and the other names that libraries know it by."""
    inner = prefix.removeprefix(next(start for start in _STARTS if prefix.startswith(start)))
    return tuple(dict.fromkeys((prefix, *(f"{start}{inner}" for start in _STARTS))))


def names(fields: Fields, name: str) -> tuple[str, ...]:
    """Return a list of names, which may be absent or null.

    Raises:
        ModelError: it is something else.
    """
    found = fields.take(name, (list, type(None)), default=None) or []
    if not all(isinstance(one, str) for one in found):
        raise fields.error(name, "must be a list of names")
    return tuple(found)


def one_of(fields: Fields, name: str, allowed: tuple[object, ...], remedy: str, default: object = None) -> object:
    """Return a key that has one of some values; words are compared in lower case.

    Raises:
        ModelError: it has another; the message ends with the remedy.
    """
    value = fields.take(name, (str, int, bool, type(None), dict, list), default=default)
    value = value.lower() if isinstance(value, str) else value
    if not any(type(value) is type(one) and value == one for one in allowed):
        raise fields.error(name, f"{value!r} is not supported: {remedy}"[:400])
    return value
