"""A stack of blocks on the device that its weights are on: kernels on a GPU, TorchScript on a CPU."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from services.common.kernels.dispatch import on_kernel
from services.common.kernels.rope import Frequencies, Rotation, RotationTable
from services.common.model.cpu.cpu import HostBlockAttention
from services.common.model.cpu.cpu_hybrid import HostHeadGates, host_mixer
from services.common.model.cpu.host_stack import host_stack
from services.common.model.fields.errors import ModelError
from services.common.model.gpu.layers import BlockAttention, KernelStack, kernel_mixer
from services.common.model.spec import ModelSpec, Rope, StackSpec
from services.common.model.states.states import LayerState, Rows, SpanPlan
from services.common.model.weights.weights import AttentionWeights, LayerWeights

_HEAD_SIZES = {16, 32, 64, 128}
"""Of keys and of values, for which there are kernels."""


class Stack(Protocol):
    """Blocks over one residual stream."""

    def __call__(
        self, ids_T: Tensor, embed_VD: Tensor, rows: Rows, rotations: Sequence[Rotation], states: Sequence[LayerState],
        taps: Sequence[int] = (), plans: Sequence[SpanPlan] = (),
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Return normalised hidden states [E, D], and the residual streams after `taps`, concatenated [T, F].

        The last block's stream is normalised: what Hugging Face calls its hidden states, and drafters were trained on.
        If `rows` say which are read in the end, hidden states are of those alone, and behind its mixer the last block
        has no others, unless it is tapped.
        `rotations` are those of each group of attention. `states` are those of each layer, and left as they are after
        the rows; recurrent ones need a plan of each span.
        """
        ...


def target_stack(spec: StackSpec, layers: Sequence[LayerWeights], norm_D: Tensor) -> Stack:
    """Return blocks whose rows leave their states behind, and see those of the rows before."""
    if not on_kernel(norm_D):
        mixers = [host_mixer(layer, record, spec) for layer, record in zip(layers, spec.layers, strict=True)]
        return host_stack(spec, layers, norm_D, mixers)
    own = [kernel_mixer(layer, record, spec) for layer, record in zip(layers, spec.layers, strict=True)]
    return KernelStack(spec, layers, norm_D, own)


def refuse_without_kernels(spec: ModelSpec, dtype: torch.dtype) -> None:
    """Check that kernels for a GPU compute a model in this type.

    Raises:
        ModelError: they do not.
    """
    if dtype == torch.float64 and spec.routes:
        raise ModelError("mixtures of experts in float64 run on a CPU only: take float32 or bfloat16 on a GPU")
    if dtype == torch.float64 and any(layer.sandwich for layer in spec.layers):
        raise ModelError("norms behind parts of blocks in float64 run on a CPU only: take float32 or bfloat16 on a GPU")
    delta = spec.delta
    if delta is None:
        return
    if dtype == torch.float64:
        raise ModelError("recurrent layers in float64 run on a CPU only")
    if not {delta.k_dim, delta.v_dim} <= _HEAD_SIZES:
        raise ModelError(f"recurrent heads of {delta.k_dim} by {delta.v_dim} run on a CPU only")


def draft_stack(spec: StackSpec, layers: Sequence[LayerWeights], norm_D: Tensor, views: Sequence[int]) -> Stack:
    """Return blocks whose rows attend to a context and to one another, in each layer by that one of their views."""
    seen = list(zip(layers, views, strict=True))
    if on_kernel(norm_D):
        return KernelStack(spec, layers, norm_D, [BlockAttention(layer.attention, spec, view) for layer, view in seen])
    return host_stack(spec, layers, norm_D, [_host_block(layer.attention, spec, view) for layer, view in seen])


def _host_block(weights: AttentionWeights, spec: StackSpec, view: int) -> nn.Module:
    attention = HostBlockAttention(weights, spec, view)
    return attention if weights.gate_FD is None else HostHeadGates(attention, weights.gate_FD)


def rotation_table(spec: StackSpec, positions: int, dtype: torch.dtype, device: torch.device) -> RotationTable:
    """Return the rotary table of a stack with one group of attention, as `rotation_tables`."""
    (table,) = rotation_tables(spec, positions, dtype, device)
    return table


def rotation_tables(
    spec: StackSpec, positions: int, dtype: torch.dtype, device: torch.device
) -> tuple[RotationTable, ...]:
    """Return the rotary table of each group of attention for `positions`; never narrower than float32."""
    wide = dtype if dtype == torch.float64 else torch.float32
    made: dict[tuple[Rope, int], RotationTable] = {}
    for own in spec.groups:
        rope, key = own.rope, (own.rope, own.head_dim)
        if key not in made:
            frequencies = Frequencies.of(own.head_dim, rope.theta, rope.scaling, wide, rope.turning)
            made[key] = RotationTable(positions, frequencies, wide, device)
    return tuple(made[own.rope, own.head_dim] for own in spec.groups)
