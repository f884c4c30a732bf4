"""AWQ in the layout of its GEMM kernels: four bits, packed along the outputs, with a zero point a group."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from services.common.kernels.linear.packed_weight import Codes
from services.common.model.fields.fields import Fields
from services.common.model.files.weight_format import (
    AUTO_ROUND,
    SCALES,
    Beside,
    Format,
    Kind,
    Shape,
    TensorPart,
    names,
    one_of,
    whole,
)
from services.common.model.files.widen import scaled, scales_of_lines

METHOD = "awq"
KINDS = (
    Kind("`awq`, `version` `gemm`, 4 bits", "`*-AWQ`", "`gemv`, `marlin`, other widths",
         ({"quant_method": METHOD, "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"},)),
)  # fmt: skip
BESIDE = Beside("quant_config.json", words=(("w_bit", "bits"), ("q_group_size", "group_size")))
_PLACE = (0, 4, 1, 5, 2, 6, 3, 7)
"""In which nibble of a word each of eight outputs lies."""
_BITS, _WORD = 4, 8
_INTS = frozenset({torch.int32})
_REMEDY = "take a file packed for GEMM (AutoAWQ's default), or GPTQ, or compressed-tensors"
_MAKING = frozenset({
    "backend", "do_fuse", "exllama_config", "fuse_max_seq_len", "modules_to_fuse", "quantizer", "meta", "lm_head",
    "desc_act", "sym", "true_sequential", "damp_percent", "offload_to_disk", "offload_to_disk_path", "pack_dtype",
}) | AUTO_ROUND  # fmt: skip


@dataclass(frozen=True)
class Awq:
    """`group` columns share a scale and a zero point; all of a line do for -1."""

    group: int

    @property
    def summary(self) -> str:
        """The format and what shares a scale, in a line of the log."""
        return f"AWQ, 4 bits, groups of {self.group}" if self.group > 0 else "AWQ, 4 bits, a scale a line"

    @property
    def ends(self) -> frozenset[str]:
        """There is no `weight`."""
        return frozenset({"qweight", "qzeros", "scales"})

    @property
    def idle(self) -> frozenset[str]:
        """None of `ends`: all are read."""
        return frozenset()

    def parts(self, prefix: str, shape: Shape) -> Mapping[str, TensorPart]:
        """Words hold eight outputs each."""
        outputs, depth = shape
        groups = whole(prefix, depth, self._size(depth), "columns")
        words = whole(prefix, outputs, _WORD, "outputs")
        return {
            "qweight": TensorPart((depth, words), _INTS),
            "qzeros": TensorPart((groups, words), _INTS),
            "scales": TensorPart((groups, outputs), SCALES),
        }

    def widened(self, prefix: str, shape: Shape, parts: Mapping[str, Tensor]) -> Tensor:
        """(code - zero) * scale."""
        depth = shape[1]
        codes_FD, zeros_FG = (_outputs_first(parts[name]) for name in ("qweight", "qzeros"))
        scale_FG = parts["scales"].float().t()
        return scaled(codes_FD, scale_FG, (1, self._size(depth)), zeros_FG)

    @property
    def block(self) -> None:
        """As that of `CodedFormat`: codes have other bits."""
        return

    @property
    def code_bits(self) -> int:
        """As that of `CodedFormat`."""
        return _BITS

    def codes(self, prefix: str, shape: Shape, parts: Mapping[str, Tensor]) -> Codes | None:
        """As that of `CodedFormat`."""
        scale_FG = scales_of_lines(parts["scales"].float().t(), (1, self._size(shape[1])), shape)
        if scale_FG is None:
            return None
        codes_FD, zeros_FG = (_outputs_first(parts[name]) for name in ("qweight", "qzeros"))
        return Codes(codes_FD, scale_FG, zeros_FG)

    def _size(self, depth: int) -> int:
        return depth if self.group < 0 else self.group


def _outputs_first(words_DW: Tensor) -> Tensor:
    """Return codes [F, D], uint8."""
    words_WD = words_DW.t().contiguous()
    return torch.stack([(words_WD >> (_BITS * place) & 15).to(torch.uint8) for place in _PLACE], 1).flatten(0, 1)


def read(fields: Fields) -> Format:
    """Read `quantization_config`.

    Raises:
        ModelError: it is of another layout, or a key is malformed or not understood.
    """
    one_of(fields, "bits", (_BITS,), _REMEDY, default=_BITS)
    one_of(fields, "version", ("gemm", None), _REMEDY)
    one_of(fields, "format", ("gemm", None), _REMEDY)
    one_of(fields, "checkpoint_format", ("gemm", None), _REMEDY)
    one_of(fields, "method", ("awq", None), _REMEDY)
    one_of(fields, "dynamic", (None, {}), "take a file with one width")
    one_of(fields, "zero_point", (True,), _REMEDY, default=True)
    names(fields, "modules_to_not_convert")
    group = group_size(fields)
    fields.finish(_MAKING)
    return Awq(group)


def group_size(fields: Fields) -> int:
    """Return how many columns share a scale, -1 for all.

    Raises:
        ModelError: it is neither that nor a size.
    """
    size: int = fields.take("group_size", (int,), default=128)
    if size != -1 and size < 1:
        raise fields.error("group_size", f"must be -1 or a size, is {size}")
    return size
