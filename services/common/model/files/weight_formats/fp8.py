"""FP8 with scales of blocks, as Qwen's and DeepSeek's own files have it, or with one scale a tensor.

`weight_scale_inv` is multiplied by, despite its name. A scale is a plain number or, as `ue8m0`, a power of two.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from services.common.kernels.linear.packed_weight import Codes
from services.common.model.fields.fields import Fields
from services.common.model.files.weight_format import (
    EXPONENTS,
    SCALES,
    Format,
    FormatError,
    Kind,
    Shape,
    TensorPart,
    blocks,
    names,
    one_of,
)
from services.common.model.files.widen import scaled, scales_of, scales_of_lines

METHOD = "fp8"
KINDS = (
    Kind("`fp8`, `weight_block_size`", "`*-FP8`", "static scales of activations",
         ({"quant_method": METHOD, "weight_block_size": [128, 128]},)),
    Kind("`fp8` without blocks", "one scale a tensor, `activation_scheme` `dynamic`", "static scales of activations",
         ({"quant_method": METHOD},)),
)  # fmt: skip
BESIDE = None
DYNAMIC = (
    "rows are multiplied in bfloat16 here, so scales of activations that were fixed beforehand have no place. "
    "Take a file with dynamic scales (names end in -FP8, -FP8-dynamic or -FP8-block), or the original in bfloat16"
)
_E4M3 = frozenset({torch.float8_e4m3fn})
_TENSOR = "weight_scale"
_BLOCKS = "weight_scale_inv"


@dataclass(frozen=True)
class Fp8:
    """E4M3 codes; `block` are lines and columns that share a scale, None for all of a tensor."""

    block: tuple[int, int] | None

    @property
    def summary(self) -> str:
        """The format and what shares a scale, in a line of the log."""
        return "FP8, one scale a tensor" if self.block is None else f"FP8, scales of {self.block[0]} x {self.block[1]}"

    @property
    def ends(self) -> frozenset[str]:
        """The scale stands beside the codes."""
        return frozenset({"weight", *self._scales})

    @property
    def idle(self) -> frozenset[str]:
        """None of `ends`: all are read."""
        return frozenset()

    @property
    def _scales(self) -> tuple[str, ...]:
        """Names of the scale; that of a whole tensor has either."""
        return (_TENSOR, _BLOCKS) if self.block is None else (_BLOCKS,)

    def parts(self, prefix: str, shape: Shape) -> Mapping[str, TensorPart]:
        """Blocks at the ends may be shorter."""
        grid = (1,) if self.block is None else tuple(map(blocks, shape, self.block))
        scale = TensorPart(grid, SCALES | EXPONENTS, optional=len(self._scales) > 1)
        return {"weight": TensorPart(shape, _E4M3)} | dict.fromkeys(self._scales, scale)

    def widened(self, prefix: str, shape: Shape, parts: Mapping[str, Tensor]) -> Tensor:
        """Each code times its block's scale."""
        return scaled(parts["weight"], self._grid(shape, parts), self._sizes(shape))

    @property
    def code_bits(self) -> int:
        """As that of `CodedFormat`."""
        return 8

    def codes(self, prefix: str, shape: Shape, parts: Mapping[str, Tensor]) -> Codes | None:
        """As that of `CodedFormat`."""
        scale_FG = scales_of_lines(self._grid(shape, parts), self._sizes(shape), shape)
        return None if scale_FG is None else Codes(parts["weight"], scale_FG)

    def _sizes(self, shape: Shape) -> tuple[int, int]:
        return self.block or (shape[0], shape[1])

    def _grid(self, shape: Shape, parts: Mapping[str, Tensor]) -> Tensor:
        rows, columns = map(blocks, shape, self._sizes(shape))
        found = [parts[name] for name in self._scales if name in parts]
        if len(found) > 1:
            raise FormatError(f"{_TENSOR} and {_BLOCKS} stand beside one weight: one of them must go")
        return scales_of(found[0]).view(rows, columns)


def read(fields: Fields) -> Format:
    """Read `quantization_config`.

    Raises:
        ModelError: activations have static scales, or a key is malformed or not understood.
    """
    one_of(fields, "fmt", ("e4m3", "float8_e4m3fn", None), "only e4m3 is")
    one_of(fields, "activation_scheme", ("dynamic",), DYNAMIC, default="dynamic")
    one_of(fields, "scale_fmt", ("ue8m0", "float", None), "scales are floats or ue8m0")
    one_of(fields, "kv_cache_scheme", (None,), "keys and values are kept in the type of the model")
    one_of(fields, "expert_dtype", ("fp8", None), "only fp8 is")
    for name in ("modules_to_not_convert", "ignored_layers", "modules_to_convert"):
        names(fields, name)
    fields.take("dequantize", (bool, type(None)), default=None)
    size = fields.take("weight_block_size", (list, type(None)), default=None)
    if size is not None and (len(size) != 2 or any(type(one) is not int or one < 1 for one in size)):
        raise fields.error("weight_block_size", f"must be two sizes, is {size!r}"[:200])
    fields.finish(frozenset())
    return Fp8(None if size is None else (size[0], size[1]))
