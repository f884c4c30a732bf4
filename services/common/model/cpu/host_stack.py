"""Runs a model's blocks on a CPU."""

from collections.abc import Callable, Sequence
from typing import cast

from torch import Tensor, nn

from services.common.kernels.gated_delta.plan import BlockPlan
from services.common.kernels.rope import Rotation
from services.common.kernels.torchscript import compiled
from services.common.model.cpu.cpu import HostBlocks, HostLayer, HostSandwich, Places
from services.common.model.spec import StackSpec
from services.common.model.states.states import LayerState, Rows, SpanPlan
from services.common.model.weights.weights import LayerWeights

HostStack = Callable[..., tuple[Tensor, Tensor]]
"""Called as a `Stack`."""


def host_stack(
    spec: StackSpec, layers: Sequence[LayerWeights], norm_D: Tensor, mixers: Sequence[nn.Module]
) -> HostStack:
    """Return what runs a model's layers; `mixers` are theirs."""
    norms = [layer.input_norm_D for layer in layers] + [norm_D]
    blocks = [
        (HostSandwich if record.sandwich else HostLayer)(mixer, layer, record, next_norm_D, spec)
        for mixer, layer, record, next_norm_D in zip(mixers, layers, spec.layers, norms[1:], strict=True)
    ]
    return stack_of(blocks, norms[0], spec)


def stack_of(blocks: Sequence[nn.Module], first_norm_D: Tensor, spec: StackSpec) -> HostStack:
    """Return what runs blocks that are called as a `HostLayer` is."""
    host_blocks = compiled(HostBlocks(blocks, first_norm_D, spec))

    def run(
        ids_T: Tensor, embed_VD: Tensor, rows: Rows, rotations: Sequence[Rotation], states: Sequence[LayerState],
        taps: Sequence[int] = (), plans: Sequence[SpanPlan] = (),
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        writes = list(rows.writes) or [rows.slots_T] * len(rotations)
        places = Places(list(rotations), writes, [], [], [], cast("list[BlockPlan]", list(plans)))
        for part in rows.parts:
            places.counts.append(part.span.count)
        for view in rows.views:
            places.reads.append(view.read_BT)
            places.biases.append(view.bias_B1WT)
        last_E = None if rows.ends is None else rows.last_E
        hidden_ED, features_TF = host_blocks(ids_T, embed_VD, places, list(states), list(taps), last_E)
        return hidden_ED, features_TF

    return run
