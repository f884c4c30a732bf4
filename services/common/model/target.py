"""The target: a model of any family over spans of rows."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor

from services.common.kernels.cap_logits import bounded
from services.common.kernels.dispatch import INTERPRETED, on_kernel
from services.common.kernels.linear import TileBest, linear, linear_scored
from services.common.kernels.linear.cublas import keep_order
from services.common.kernels.linear.packed.launch import takes_codes
from services.common.kernels.linear.product import product
from services.common.kernels.torchscript import compiled
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
from services.common.model.stack import refuse_without_kernels, rotation_tables, target_stack
from services.common.model.states.states import Blocks, CodedStates, Rows, SequenceStates
from services.common.model.weights.expert_memory import expert_elements, held
from services.common.model.weights.weights import (
    ModelWeights,
    elements,
    keeps_packed,
    mixtures,
    model_shapes,
    products,
    weight_bytes,
    widened_bytes,
)

_LOG = logging.getLogger(__name__)
NO_CODES: Mapping[int, int] = MappingProxyType({})
AUTO, INT8, FP8 = "auto", "int8", "fp8"
"""What rows are rounded to before they are multiplied: nothing, whole numbers, or codes of e4m3."""


class Target:
    """Weights and forward of a model; holds no request state. `lm_head_VD` is `embed_VD` itself when tied.

    `products` are the shapes [outputs, depth] of the weights whose sums have an order on a GPU. `weight_bytes` is what
    all weights take, `widened_bytes` what a packed one takes beside for products of many rows; 0: none is packed.
    `mixtures` are the experts of every layer that has them.
    """

    def __init__(self, spec: ModelSpec, weights: ModelWeights) -> None:
        self.spec = spec
        self.revision, self.elements = weights.revision, weights.elements
        self.embed_VD, self.lm_head_VD = weights.embed_VD, weights.lm_head_VD
        self.products = products(weights)
        self.weight_bytes, self.widened_bytes = weight_bytes(weights), widened_bytes(weights)
        self.mixtures = mixtures(weights)
        self._stack = target_stack(spec, weights.layers, weights.norm_D)
        self._head = None if on_kernel(self.lm_head_VD) else compiled(product(self.lm_head_VD))
        self._tables = rotation_tables(spec, spec.max_positions, self.dtype, self.device)
        self._windows = [own.window for own in spec.groups]

    @property
    def dtype(self) -> torch.dtype:
        """Type of weights, K/V and hidden states."""
        return self.embed_VD.dtype

    @property
    def logit_type(self) -> torch.dtype:
        """Type of logits on a GPU: bounded ones would be alike too often in a narrow type."""
        return torch.float32 if self.spec.logit_cap and self.dtype != torch.float64 else self.dtype

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.embed_VD.device

    def use_shared(self, embed_VD: Tensor, lm_head_VD: Tensor | None) -> None:
        """Use copies of the embedding and of the head (None when tied) that live in shared memory."""
        assert embed_VD.shape == self.embed_VD.shape, "the shared embedding has another shape"
        self.embed_VD = embed_VD
        self.lm_head_VD = embed_VD if lm_head_VD is None else lm_head_VD

    def new_states(
        self, blocks: int, block_size: int, slots: int = 1, width: int = 1, snapshots: int = 0, coded: bool = False,
        near: int = 0,
    ) -> SequenceStates:  # fmt: skip
        """Return the states of sequences that share blocks, the pad block included, and have slots, the pad slot too.

        `width` is that of the widest span whose rows may be rejected, and `snapshots` the places for recurrent states.
        With `coded` keys and values are codes of eight bits, with `near` layers with a window have so many blocks.
        """
        kind = CodedStates if coded else SequenceStates
        return kind(self.spec, Blocks(blocks, block_size, near), self.dtype, self.device, slots, width, snapshots)

    @torch.no_grad()
    def forward(
        self, ids_T: Tensor, rows: Rows, states: SequenceStates, taps: Sequence[int] = ()
    ) -> tuple[Tensor, Tensor]:
        """Run rows, writing what they leave in the states of their sequences.

        Returns:
            Normalised hidden states [E, D] of the rows that are read in the end, all unless `rows` say which, and the
            residual streams after the blocks `taps`, concatenated in that order [T, len(taps) * D]. The last block's
            stream is normalised.
        """
        rows, rotations = (
            rows.within(self._windows, states.places_N),
            [table.at(rows.positions_T) for table in self._tables],
        )
        plans = states.plans(rows)
        outcome = self._stack(ids_T, self.embed_VD, rows, rotations, states.layers, taps, plans)
        states.fold(plans)
        return outcome

    @torch.no_grad()
    def logits(self, hidden: Tensor, room_TV: Tensor | None = None) -> Tensor:
        """Return the logits [..., V] of normalised hidden states: on the CPU, and where bounded, float32 or wider.

        `room_TV` is memory for them, one row for each hidden state; the CPU path makes its own.
        """
        if self._head is None:
            rows_TD, cap = hidden.flatten(0, -2), self.spec.logit_cap
            found_TV = bounded(linear(rows_TD, self.lm_head_VD), cap, room_TV) if cap else None
            found_TV = linear(rows_TD, self.lm_head_VD, room_TV) if found_TV is None else found_TV
            return found_TV.view(*hidden.shape[:-1], -1)
        logits: Tensor = self._head(hidden.flatten(0, -2)).view(*hidden.shape[:-1], -1)
        if self.spec.logit_cap:
            logits = logits.div_(self.spec.logit_cap).tanh_().mul_(self.spec.logit_cap)
        return logits if logits.dtype == torch.float64 else logits.float()

    @torch.no_grad()
    def scored(self, hidden_TD: Tensor, room_TV: Tensor) -> tuple[Tensor, TileBest | None]:
        """Return on a GPU the logits [T, V] as `logits`, and the best of their tiles where the product finds them."""
        if self.spec.logit_cap:
            return self.logits(hidden_TD, room_TV), None
        return linear_scored(hidden_TD, self.lm_head_VD, room_TV)


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
