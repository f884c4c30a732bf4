"""GPTQ: codes of a few bits, packed along the depth; the first layout stores zero points less one."""

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
    FormatError,
    Kind,
    Shape,
    TensorPart,
    one_of,
    whole,
)
from services.common.model.files.widen import scaled, scales_of_lines, unpacked

METHOD = "gptq"
KINDS = (
    Kind(
        "`gptq`, 2, 3, 4 or 8 bits, `checkpoint_format` `gptq` or `gptq_v2`, any `desc_act`",
        "`*-GPTQ-Int4`, `*-GPTQ-Int8`",
        "`marlin`, bits that differ by module (`dynamic`)",
        tuple({"quant_method": METHOD, "bits": bits, "group_size": 128, "sym": True} for bits in (4, 8)),
    ),
)
BESIDE = Beside("quantize_config.json")
_FOUR = 4
_INTS = frozenset({torch.int32})
_REMEDY = "take a file whose checkpoint_format is gptq or gptq_v2"
_MAKING = frozenset({
    "act_group_aware", "backend", "batch_size", "block_name_to_quantize", "buffered_fwd", "cache_block_outputs",
    "damp_auto_increment", "damp_percent", "dataset", "disable_exllama", "exllama_config", "fail_safe", "failsafe",
    "foem", "gptaq", "gptaq_alpha", "gptaq_memory_device", "hessian_chunk_size", "hyb_act", "lm_head",
    "max_input_length", "meta", "mock_quantization", "model_file_base_name", "model_name_or_path", "model_seqlen",
    "module_name_preceding_first_block", "modules_in_block_to_quantize", "mse", "offload_to_disk",
    "offload_to_disk_path", "pack_impl", "pad_token_id", "static_groups", "tokenizer", "true_sequential",
    "use_cuda_fp16", "use_exllama", "v2", "v2_alpha", "v2_memory_device", "version",
}) | AUTO_ROUND  # fmt: skip


@dataclass(frozen=True)
class Gptq:
    """`group` columns share a scale and a zero point, all of a line do for -1; `added` is what stored zeros lack.

    Zeros of symmetric files are the middle of the range, whatever is stored. In `act_order` columns are in any group.
    """

    bits: int
    group: int
    symmetric: bool
    added: int
    act_order: bool

    @property
    def summary(self) -> str:
        """The format and what shares a scale, in a line of the log."""
        return f"GPTQ, {self.bits} bits, " + (f"groups of {self.group}" if self.group > 0 else "a scale a line")

    @property
    def ends(self) -> frozenset[str]:
        """There is no `weight`."""
        return frozenset({"qweight", "qzeros", "scales", "g_idx"})

    @property
    def idle(self) -> frozenset[str]:
        """None of `ends`: all are read."""
        return frozenset()

    def parts(self, prefix: str, shape: Shape) -> Mapping[str, TensorPart]:
        """Codes lie along the depth, zeros along the outputs, without gaps."""
        outputs, depth = shape
        groups = whole(prefix, depth, self._size(depth), "columns")
        words, across = (whole(prefix, length * self.bits, 32, "bits") for length in (depth, outputs))
        return {
            "qweight": TensorPart((words, outputs), _INTS),
            "qzeros": TensorPart((groups, across), _INTS, optional=self.symmetric),
            "scales": TensorPart((groups, outputs), SCALES),
            "g_idx": TensorPart((depth,), _INTS, optional=not self.act_order),
        }

    def widened(self, prefix: str, shape: Shape, parts: Mapping[str, Tensor]) -> Tensor:
        """(code - zero) * scale."""
        depth = shape[1]
        codes_FD, scale_FG, zeros_FG = self._unpacked(shape, parts)
        group_D = self._groups(prefix, depth, parts.get("g_idx"))
        return scaled(codes_FD, scale_FG, (1, self._size(depth)), zeros_FG, group_D)

    @property
    def block(self) -> None:
        """As that of `CodedFormat`: codes have other bits."""
        return

    @property
    def code_bits(self) -> int:
        """As that of `CodedFormat`."""
        return _FOUR if self.bits == _FOUR and not self.act_order else 0

    def codes(self, prefix: str, shape: Shape, parts: Mapping[str, Tensor]) -> Codes | None:
        """As that of `CodedFormat`: of four bits, with columns in order."""
        if self.bits != _FOUR or self._out_of_order(prefix, shape[1], parts.get("g_idx")):
            return None
        codes_FD, scale_FG, zeros_FG = self._unpacked(shape, parts)
        found_FG = scales_of_lines(scale_FG, (1, self._size(shape[1])), shape)
        return None if found_FG is None else Codes(codes_FD, found_FG, zeros_FG)

    def _unpacked(self, shape: Shape, parts: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return codes, scales and zero points."""
        outputs, depth = shape
        codes_FD, scale_FG = unpacked(parts["qweight"].t(), self.bits, depth), parts["scales"].float().t()
        if self.symmetric:
            return codes_FD, scale_FG, torch.full(scale_FG.shape, 1 << (self.bits - 1), dtype=torch.int16)
        return codes_FD, scale_FG, unpacked(parts["qzeros"], self.bits, outputs).t().to(torch.int16) + self.added

    def _out_of_order(self, prefix: str, depth: int, given_D: Tensor | None) -> bool:
        """Whether columns are in any group."""
        plain_D = torch.arange(depth, dtype=torch.int32) // self._size(depth)
        return not torch.equal(self._groups(prefix, depth, given_D).int(), plain_D)

    def _groups(self, prefix: str, depth: int, given_D: Tensor | None) -> Tensor:
        """Return the group of each column."""
        plain_D = torch.arange(depth, dtype=torch.int32) // self._size(depth)
        if given_D is None or torch.equal(given_D, plain_D):
            return plain_D
        if not self.act_order:
            raise FormatError(f"{prefix}.g_idx: columns are out of order, though desc_act is false")
        if int(given_D.min()) < 0 or int(given_D.max()) >= depth // self._size(depth):
            raise FormatError(f"{prefix}.g_idx: names a group that there is not")
        return given_D

    def _size(self, depth: int) -> int:
        return depth if self.group < 0 else self.group


def read(fields: Fields) -> Format:
    """Read `quantization_config`.

    Raises:
        ModelError: it is of another layout, or a key is malformed or not understood.
    """
    bits = one_of(fields, "bits", (2, 3, 4, 8), "2, 3, 4 and 8 bits are")
    layout = one_of(fields, "checkpoint_format", ("gptq", "gptq_v2", None), _REMEDY)
    other = one_of(fields, "format", ("gptq", "gptq_v2", None), _REMEDY)
    one_of(fields, "is_marlin_format", (False, None), _REMEDY)
    one_of(fields, "pack_dtype", ("int32", None), "codes are read out of int32")
    one_of(fields, "method", ("gptq", None), _REMEDY)
    one_of(fields, "rotation", (None,), "take a file without rotated weights")
    one_of(fields, "adapter", (None,), "merge the adapter")
    group: int = fields.take("group_size", (int,), default=128)
    if group != -1 and group < 1:
        raise fields.error("group_size", f"must be -1 or a size, is {group}")
    if _mixed(fields):
        raise fields.error("dynamic", "bits that differ by module are not supported: take a file with one width")
    symmetric, act_order = (
        fields.take(name, (bool,), default=default) for name, default in (("sym", True), ("desc_act", False))
    )
    fields.finish(_MAKING)
    assert isinstance(bits, int)
    return Gptq(bits, group, symmetric, 0 if "gptq_v2" in (layout, other) else 1, act_order)


def _mixed(fields: Fields) -> bool:
    """Whether modules have settings of their own; those that are only left out, named with `-:`, have none."""
    rules = fields.take("dynamic", (dict, bool, type(None)), default=None) or {}
    return rules is True or not all(name.startswith("-:") for name in rules)
