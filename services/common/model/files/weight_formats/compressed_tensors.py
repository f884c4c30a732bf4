"""compressed-tensors: what llm-compressor writes; integers and floats of 4 and 8 bits, packed or in bytes."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

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
    spellings,
    whole,
)
from services.common.model.files.widen import fp4_numbers, nibbles, scaled, scales_of, scales_of_lines, unpacked

METHOD = "compressed-tensors"


def _example(layout: str, kind: str, bits: int, strategy: str, group: int | None = None) -> Mapping[str, Any]:
    """Return what a published file of a layout says."""
    weights = {"num_bits": bits, "type": kind, "strategy": strategy, "group_size": group, "symmetric": True}
    return {
        "quant_method": METHOD,
        "format": layout,
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }


KINDS = (
    Kind("`compressed-tensors`, `float-quantized`", "`*-FP8-dynamic`, `*-FP8-block`", "static scales of activations",
         (_example("float-quantized", "float", 8, "channel"),)),
    Kind("`compressed-tensors`, `int-quantized`", "`*-quantized.w8a8`", "the same",
         (_example("int-quantized", "int", 8, "channel"),)),
    Kind("`compressed-tensors`, `pack-quantized`, 1 to 8 bits", "`*-quantized.w4a16`", "24-sparse",
         (_example("pack-quantized", "int", 4, "group", 128),)),
    Kind("`compressed-tensors`, `nvfp4-pack-quantized`", "`*-NVFP4`", "",
         (_example("nvfp4-pack-quantized", "float", 4, "tensor_group", 16),)),
    Kind("`compressed-tensors`, `mxfp4-pack-quantized`, `mxfp8-quantized`", "`*-MXFP4`, `*-MXFP8`", "",
         (_example("mxfp4-pack-quantized", "float", 4, "group", 32),
          _example("mxfp8-quantized", "float", 8, "group", 32))),
)  # fmt: skip
BESIDE = None
_E4M3, _INT8 = frozenset({torch.float8_e4m3fn}), frozenset({torch.int8})
_BYTES, _WORDS = frozenset({torch.uint8}), frozenset({torch.int32})
_PACKED, _NVFP4, _MXFP4, _MXFP8 = "pack-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mxfp8-quantized"
_MIXED = "mixed-precision"
_WIDTHS: Mapping[tuple[str, str], tuple[int, ...]] = {
    ("float-quantized", "float"): (8,),
    ("int-quantized", "int"): (8,),
    ("naive-quantized", "float"): (8,),
    ("naive-quantized", "int"): (8,),
    (_PACKED, "int"): (1, 2, 3, 4, 5, 6, 7, 8),
    (_NVFP4, "float"): (4,),
    (_MXFP4, "float"): (4,),
    (_MXFP8, "float"): (8,),
}
"""Bits of a number, by format and type."""
_LAYOUTS = tuple(dict.fromkeys(layout for layout, _ in _WIDTHS))
_FP4 = (_NVFP4, _MXFP4)
_CODED = (("float-quantized", 8, False), ("naive-quantized", 8, False), (_PACKED, 4, True))
"""Layouts whose codes kernels widen: bits, and whether they are integers."""
_BY_LINE = ((1, 0), (0, 0))
"""Blocks of lines, or of all: each line has one scale."""
_GROUPS = {_NVFP4: 16, _MXFP4: 32, _MXFP8: 32}
"""Columns that share a scale, where a format says."""
_STATIC = (
    "rows are multiplied in bfloat16 here, so scales of activations that were fixed beforehand have no place. "
    "Take a file with dynamic scales (names end in -FP8-dynamic or -FP8-block), or of weights only"
)
_FORMATS = f"only {', '.join(_LAYOUTS)} are: take one of these, or the original in bfloat16"
_LINEAR = "Linear"
_IDLE = frozenset({"input_global_scale"})


@dataclass(frozen=True)
class Group:
    """How the weights are packed that `targets` name: modules by name, by `re:` and an expression, or all linear ones.

    `block` are lines and columns that share a scale, 0 for all of them. With `asymmetric` each scale has a zero point,
    with `ordered` a column is in any group.
    """

    targets: tuple[str, ...]
    layout: str
    bits: int
    block: tuple[int, int]
    integers: bool
    asymmetric: bool
    ordered: bool

    @property
    def summary(self) -> str:
        """Format, bits and scales."""
        lines, columns = (str(size) if size else "all" for size in self.block)
        return f"{self.layout}, {self.bits} bits, scales of {lines} x {columns}"

    @property
    def ends(self) -> frozenset[str]:
        """As those of `Format`."""
        codes = ("weight_packed", "weight_shape") if self.layout == _PACKED or self.layout in _FP4 else ("weight",)
        more = {
            "weight_global_scale": self.layout == _NVFP4,
            "weight_zero_point": self.asymmetric,
            "weight_g_idx": self.ordered,
        }
        return frozenset((*codes, "weight_scale", *(end for end, there in more.items() if there)))

    def parts(self, prefix: str, shape: Shape) -> dict[str, TensorPart]:
        """As those of `Format`."""
        grid = (1,) if self.block == (0, 0) else self._grid(prefix, shape)
        scales = _E4M3 if self.layout == _NVFP4 else EXPONENTS if self.layout in _GROUPS else SCALES
        parts = self._codes(shape) | {"weight_scale": TensorPart(grid, scales)}
        if self.layout == _NVFP4:
            parts["weight_global_scale"] = TensorPart((1,), frozenset({torch.float32}))
        if self.asymmetric:
            parts["weight_zero_point"] = self._zeros(shape, grid)
        if self.ordered:
            parts["weight_g_idx"] = TensorPart((shape[1],), _WORDS)
        return parts

    def _codes(self, shape: Shape) -> dict[str, TensorPart]:
        outputs, depth = shape
        told = {"weight_shape": TensorPart((2,), frozenset({torch.int64, torch.int32}), optional=True)}
        if self.layout in _FP4:
            return told | {"weight_packed": TensorPart((outputs, depth // 2), _BYTES)}
        if self.layout != _PACKED:
            return {"weight": TensorPart(shape, _INT8 if self.integers else _E4M3)}
        return told | {"weight_packed": TensorPart((outputs, blocks(depth * self.bits, 32)), _WORDS)}

    def _zeros(self, shape: Shape, scales: Shape) -> TensorPart:
        if self.layout != _PACKED or scales == (1,):
            return TensorPart(scales, _INT8)
        return TensorPart((blocks(shape[0] * self.bits, 32), scales[-1]), _WORDS)

    def _grid(self, prefix: str, shape: Shape) -> Shape:
        """Return how many scales there are; groups of columns are whole, blocks at the ends may be shorter."""
        lines, columns = self._sizes(shape)
        if lines == 1:
            return shape[0], whole(prefix, shape[1], columns, "columns")
        return blocks(shape[0], lines), blocks(shape[1], columns)

    def _sizes(self, shape: Shape) -> tuple[int, int]:
        return self.block[0] or shape[0], self.block[1] or shape[1]

    def widened(self, prefix: str, shape: Shape, parts: Mapping[str, Tensor]) -> Tensor:
        """As that of `Format`: (code - zero) * scale."""
        if self.layout == _PACKED:
            return self._widened_integers(prefix, shape, parts)
        grid, block = self._grid(prefix, shape), self._sizes(shape)
        scale_RC = scales_of(parts["weight_scale"]).view(grid)
        if self.layout in _FP4:
            codes_FD = nibbles(parts["weight_packed"])
            return scaled(codes_FD, scale_RC, block, numbers=fp4_numbers, divisor=parts.get("weight_global_scale"))
        zero = parts.get("weight_zero_point")
        return scaled(parts["weight"], scale_RC, block, None if zero is None else zero.view(grid))

    @property
    def is_whole(self) -> bool:
        """Whether weights are whole numbers with a scale a line."""
        return self.integers and self.layout != _PACKED and not self.asymmetric and self.block in _BY_LINE

    def whole(self, shape: Shape, parts: Mapping[str, Tensor]) -> tuple[Tensor, Tensor] | None:
        """As that of `WholeFormat`."""
        if not self.is_whole:
            return None
        return parts["weight"], scales_of(parts["weight_scale"]).flatten().expand(shape[0]).contiguous()

    @property
    def code_bits(self) -> int:
        """As that of `CodedFormat`."""
        return self.bits if (self.layout, self.bits, self.integers) in _CODED and not self.ordered else 0

    def codes(self, prefix: str, shape: Shape, parts: Mapping[str, Tensor]) -> Codes | None:
        """As that of `CodedFormat`."""
        if not self.code_bits:
            return None
        scale_RC = scales_of(parts["weight_scale"]).view(self._grid(prefix, shape))
        scale_FG = scales_of_lines(scale_RC, self._sizes(shape), shape)
        if scale_FG is None or not self.integers:
            return None if scale_FG is None else Codes(parts["weight"], scale_FG)
        codes_FD, zero_RC = self._unpacked(prefix, shape, parts)
        return Codes(codes_FD, scale_FG, zero_RC.expand(scale_FG.shape))

    def _widened_integers(self, prefix: str, shape: Shape, parts: Mapping[str, Tensor]) -> Tensor:
        grid, (codes_FD, zero_RC) = self._grid(prefix, shape), self._unpacked(prefix, shape, parts)
        order_D = self._order(prefix, grid[1], parts.get("weight_g_idx"))
        return scaled(codes_FD, scales_of(parts["weight_scale"]).view(grid), self._sizes(shape), zero_RC, order_D)

    def _unpacked(self, prefix: str, shape: Shape, parts: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return codes and zero points."""
        grid, told, zero = self._grid(prefix, shape), parts.get("weight_shape"), parts.get("weight_zero_point")
        if told is not None and tuple(told.tolist()) != shape:
            raise FormatError(f"{prefix}.weight_shape: says {told.tolist()}, expected {list(shape)}")
        codes_FD = unpacked(parts["weight_packed"], self.bits, shape[1])
        if zero is None or zero.dtype == torch.int8:  # that of a whole tensor is not packed
            return codes_FD, self._middle(grid) + (0 if zero is None else zero.int())
        return codes_FD, unpacked(zero.t(), self.bits, grid[0]).t()

    def _middle(self, grid: Shape) -> Tensor:
        return torch.full(grid, 1 << (self.bits - 1), dtype=torch.uint8)

    def _order(self, prefix: str, groups: int, order_D: Tensor | None) -> Tensor | None:
        if order_D is not None and (int(order_D.min()) < 0 or int(order_D.max()) >= groups):
            raise FormatError(f"{prefix}.weight_g_idx: names a group that there is not")
        return order_D


@dataclass(frozen=True)
class CompressedTensors:
    """Groups in the order of the file."""

    groups: tuple[Group, ...]

    @property
    def summary(self) -> str:
        """Those of the groups."""
        return "; ".join(dict.fromkeys(group.summary for group in self.groups))

    @property
    def ends(self) -> frozenset[str]:
        """Those of any group."""
        return _IDLE.union(*(group.ends for group in self.groups))

    @property
    def idle(self) -> frozenset[str]:
        """The scale of activations in four bits."""
        return _IDLE

    def parts(self, prefix: str, shape: Shape) -> Mapping[str, TensorPart]:
        """Those of the module's group."""
        return self._group(prefix).parts(prefix, shape)

    def widened(self, prefix: str, shape: Shape, parts: Mapping[str, Tensor]) -> Tensor:
        """By the module's group."""
        return self._group(prefix).widened(prefix, shape, parts)

    @property
    def all_whole(self) -> bool:
        """As that of `WholeFormat`."""
        return all(group.is_whole for group in self.groups)

    @property
    def block(self) -> tuple[int, int] | None:
        """As that of `CodedFormat`."""
        found = {group.block if group.code_bits == 8 else None for group in self.groups}
        return found.pop() if len(found) == 1 else None

    def whole(self, prefix: str, shape: Shape, parts: Mapping[str, Tensor]) -> tuple[Tensor, Tensor] | None:
        """By the module's group."""
        return self._group(prefix).whole(shape, parts)

    @property
    def code_bits(self) -> int:
        """Those of the first group that has any."""
        return next((group.code_bits for group in self.groups if group.code_bits), 0)

    def codes(self, prefix: str, shape: Shape, parts: Mapping[str, Tensor]) -> Codes | None:
        """By the module's group."""
        return self._group(prefix).codes(prefix, shape, parts)

    def _group(self, prefix: str) -> Group:
        """The one whose target is the module's name, else an expression for it, else the kind of module, as the
        library chooses; of equal targets the last one. Files may spell names otherwise than the library."""
        named = {target: group for group in self.groups for target in group.targets}
        ranked = sorted(named, key=lambda target: (target.startswith("re:"), target))
        for name in spellings(prefix):
            if found := [target for target in ranked if _names(target, name)]:
                return named[found[0]]
        for kind in ("Embedding",) * prefix.endswith("embed_tokens") + (_LINEAR,):
            if kind in named:
                return named[kind]
        raise FormatError(f"{prefix}: is packed, but no target of quantization_config.config_groups is its name")


def _names(target: str, prefix: str) -> bool:
    return re.match(target[3:], prefix) is not None if target.startswith("re:") else target == prefix


def read(fields: Fields) -> Format:
    """Read `quantization_config`.

    Raises:
        ModelError: it asks for what is not supported, or a key is malformed or not understood.
    """
    one_of(fields, "kv_cache_scheme", (None,), "keys and values are kept in bfloat16: take a file without one")
    sparse = fields.nested("sparsity_config")
    one_of(sparse, "format", (None, "dense"), "sparse weights are not read: take a file that is quantised alone")
    one_of(fields, "transform_config", (None, {}), "rotated weights are not read: take a file without transforms")
    one_of(fields, "moe_sparsity_config", (None,), "experts that are left out are not served")
    one_of(fields, "quantization_status", ("compressed", "frozen", None), "save the model compressed")
    layout = one_of(fields, "format", (*_LAYOUTS, _MIXED), _FORMATS)
    named = list(fields.take("config_groups", (dict,)))
    groups = fields.nested("config_groups")
    found = tuple(_read_group(groups.nested(name), str(layout)) for name in named)
    if not found:
        raise fields.error("config_groups", "is empty")
    names(fields, "ignore")
    fields.finish(frozenset({"global_compression_ratio", "version"}))
    return CompressedTensors(found)


def _read_group(fields: Fields, outer: str) -> Group:
    own = one_of(fields, "format", (*_LAYOUTS, None), _FORMATS)
    layout = str(own or outer)
    if layout == _MIXED:
        raise fields.error("format", f"is missing, though the file's is {_MIXED}")
    targets = names(fields, "targets")
    for target in targets:
        _check_target(fields, target)
    one_of(fields, "output_activations", (None,), "results of products are kept as they are")
    rows = fields.nested("input_activations")
    if rows:
        dynamic = rows.take("dynamic", (bool, str), default=False)
        if not dynamic or (dynamic == "local" and layout not in _FP4):
            raise rows.error("dynamic", f"static scales are not supported: {_STATIC}")
    weights = fields.nested("weights")
    if not weights:
        raise fields.error("weights", "is missing: the group packs no weight")
    fields.finish(frozenset())
    return _read_weights(weights, targets, layout)


def _check_target(fields: Fields, target: str) -> None:
    try:
        re.compile(target.removeprefix("re:"))
    except re.error as error:
        raise fields.error("targets", f"{target!r} is no expression: {error}"[:200]) from error


def _read_weights(fields: Fields, targets: tuple[str, ...], layout: str) -> Group:
    kind = str(one_of(fields, "type", ("int", "float"), "int and float are", default="int"))
    widths = _WIDTHS.get((layout, kind))
    if widths is None:
        raise fields.error("type", f"{layout} holds no {kind}")
    bits = one_of(fields, "num_bits", widths, f"{layout} has {' or '.join(map(str, widths))}", default=8)
    symmetric = fields.take("symmetric", (bool,), default=True)
    if not symmetric and kind == "float":
        raise fields.error("symmetric", "floats with zero points are not supported: take a symmetric file")
    one_of(fields, "dynamic", (False, None), "scales of weights are in the file", default=False)
    order = one_of(fields, "actorder", (None, False, "weight", "static", "group", "dynamic"), "weight and group are")
    fields.finish(frozenset({"observer", "observer_kwargs", "scale_dtype", "zp_dtype", "strategy", "group_size",
                             "block_structure"}))  # fmt: skip
    assert isinstance(bits, int)
    ordered = order in ("group", "dynamic") and layout == _PACKED
    return Group(targets, layout, bits, _block(fields, layout), kind == "int", not symmetric, ordered)


def _block(fields: Fields, layout: str) -> tuple[int, int]:
    """Return the lines and columns that share a scale; 0 are all of them."""
    size: Any = fields.take("group_size", (int, type(None)), default=None)
    strategy = fields.take("strategy", (str, type(None)), default=None)
    shape = fields.take("block_structure", (list, str, type(None)), default=None)
    strategy = strategy or ("tensor" if size is None else "channel" if size == -1 else "group")
    expected = _GROUPS.get(layout)
    makers: dict[str, Callable[[], tuple[int, int]]] = {
        "tensor": lambda: (0, 0),
        "channel": lambda: (1, 0),
        "group": lambda: (1, size),
        "tensor_group": lambda: (1, size),
        "block": lambda: _pair(fields, shape),
    }
    if strategy not in makers:
        raise fields.error("strategy", f"{strategy!r} is not supported: only {sorted(makers)} are"[:200])
    if "group" in strategy and (type(size) is not int or size < 1):
        raise fields.error("group_size", f"must be a size, is {size}")
    block = makers[strategy]()
    if expected and block != (1, expected):
        raise fields.error("group_size", f"{layout} has groups of {expected}, is {strategy} of {size}")
    return block


def _pair(fields: Fields, shape: Any) -> tuple[int, int]:
    sizes = [int(one) if one.isdigit() else 0 for one in shape.split("x")] if isinstance(shape, str) else shape
    if not sizes or len(sizes) != 2 or any(type(one) is not int or one < 1 for one in sizes):
        raise fields.error("block_structure", f"must be two sizes, is {shape!r}"[:200])
    return sizes[0], sizes[1]
