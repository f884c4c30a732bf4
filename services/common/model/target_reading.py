"""Reads a target: a checkpoint of any family, with weights in the bits that kernels take."""

import logging
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import torch

from services.common.kernels.dispatch import INTERPRETED
from services.common.kernels.linear.cublas import keep_order
from services.common.kernels.linear.packed.launch import takes_codes
from services.common.model.families import open_family
from services.common.model.fields.errors import ModelError
from services.common.model.files.checkpoint import TensorSource, resolve_folder
from services.common.model.files.formats import open_checkpoint
from services.common.model.files.kept import EIGHT, CodedWeights, GroupedCodes, WholeNumbers
from services.common.model.files.random_weights import RandomCheckpoint
from services.common.model.files.weight_format import CodedFormat
from services.common.model.files.weight_formats import folder_format
from services.common.model.files.widened import WidenedCheckpoint
from services.common.model.spec import ModelSpec
from services.common.model.stack import refuse_without_kernels
from services.common.model.target import Target
from services.common.model.weights.expert_memory import expert_elements, held
from services.common.model.weights.weights import elements, keeps_packed, model_shapes

_LOG = logging.getLogger(__name__)
NO_CODES: Mapping[int, int] = MappingProxyType({})
AUTO, INT8, FP8 = "auto", "int8", "fp8"
"""What rows are rounded to before they are multiplied: nothing, whole numbers, or codes of e4m3."""


def load_target(
    path: str | Path,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    random_weights: bool = False,
    activations: str = AUTO,
    codes: Mapping[int, int] = NO_CODES,
    expert_bytes: int = 0,
    beside: bool = False,
) -> Target:
    """Read a checkpoint of any family, or only its configuration with `random_weights`.

    With `activations` of int8 rows are rounded to eight bits and multiplied by the whole numbers of the file, of fp8 to
    e4m3 by the file's codes. Else kernels multiply by codes of as many bits as `codes` has, where the file has such and
    the device is of the kind: 8 (FP8) and 4. Each has the most bytes that weights may take so, else they are widened;
    0: any. With `beside` many rows are multiplied by the numbers of codes, which stay in memory too.
    With `expert_bytes` a GPU holds experts of so many bytes, and reads the others in host memory.

    Raises:
        ModelError: the checkpoint is damaged, incomplete, or of a shape that is not supported there.
    """
    folder, where = resolve_folder(path), torch.device(device)
    family, spec = open_family(folder)
    if where.type == "cuda":
        refuse_without_kernels(spec, dtype)
        keep_order()
    if expert_bytes:
        if not (where.type == "cuda" or INTERPRETED):
            raise ModelError("expert_bytes: on a CPU all experts lie in its memory")
        spec = held(spec, expert_bytes, dtype.itemsize)
    checkpoint: TensorSource = RandomCheckpoint(folder, where) if random_weights else open_checkpoint(folder)
    if activations != AUTO:
        checkpoint = _rounding(spec, checkpoint, activations, where)
    else:
        checkpoint = _kept(spec, checkpoint, dtype, codes if takes_codes(where, dtype) else NO_CODES, beside)
    return Target(spec, family.read_weights(spec, checkpoint, dtype, where))


def _rounding(spec: ModelSpec, source: TensorSource, activations: str, where: torch.device) -> TensorSource:
    """Return a source whose weights multiply rows that are rounded."""
    if not all(map(keeps_packed, spec.layers)):
        raise ModelError(f"{source.folder}: activations of eight bits are for dense models without gates alone")
    if activations == INT8:
        return WholeNumbers(source)
    if where.type == "cuda" and not takes_codes(where, torch.bfloat16):
        raise ModelError(f"{source.folder}: activations of FP8 are multiplied on an H100 or H200 alone: leave them out")
    return GroupedCodes(source, whole=where.type == "cuda")


def _kept(
    spec: ModelSpec, source: TensorSource, dtype: torch.dtype, codes: Mapping[int, int], beside: bool
) -> TensorSource:
    """Return a source that leaves weights packed, where the file's codes have so many bits as kernels take."""
    kind = folder_format(source.folder) if codes else None
    bits = kind.code_bits if isinstance(kind, CodedFormat) else 0
    if bits in codes and isinstance(source, WidenedCheckpoint | RandomCheckpoint):
        experts = expert_elements(spec) if bits == EIGHT else 0
        takes = experts + (elements(model_shapes(spec)) - experts) * (bits + 8 * dtype.itemsize * beside) // 8
        fits = not codes[bits] or takes <= codes[bits]
        if fits or experts:  # whose numbers, which they never have beside them, would take twice as much
            beside &= fits
            _LOG.info("weights are kept in the bits of their file", extra={"bits": bits, "numbers_beside": beside})
            return CodedWeights(source, bits, beside)
        _LOG.info("codes and numbers would take too much", extra={"bytes": takes, "most_bytes": codes[bits]})
    if isinstance(source, WidenedCheckpoint):
        source.tell(elements(model_shapes(spec)), dtype)
    return source
