"""Runs a model's blocks on a CPU."""

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from services.common.kernels.gated_delta.plan import BlockPlan
from services.common.kernels.rope import Rotation
from services.common.kernels.torchscript import compiled
from services.common.model.cpu.cpu import HostBlocks, HostLayer, HostSandwich, Places
from services.common.model.spec import StackSpec
from services.common.model.states.states import LayerState, Rows, SpanPlan
from services.common.model.weights.weights import LayerWeights


class HostStack:
    """Runs the blocks on a CPU."""

    def __init__(
        self, spec: StackSpec, layers: Sequence[LayerWeights], norm_D: Tensor, mixers: Sequence[nn.Module]
    ) -> None:
        """`mixers` are those of the layers."""
        norms = [layer.input_norm_D for layer in layers] + [norm_D]
        blocks = [
            (HostSandwich if record.sandwich else HostLayer)(mixer, layer, record, next_norm_D, spec)
            for mixer, layer, record, next_norm_D in zip(mixers, layers, spec.layers, norms[1:], strict=True)
        ]
        self._blocks = compiled(HostBlocks(blocks, norms[0], spec))

    @classmethod
    def of(cls, blocks: Sequence[nn.Module], first_norm_D: Tensor, spec: StackSpec) -> "HostStack":
        """Return a stack of other blocks, which are called as a `HostLayer` is."""
        stack = cls.__new__(cls)
        stack._blocks = compiled(HostBlocks(blocks, first_norm_D, spec))
        return stack

    def __call__(
        self, ids_T: Tensor, embed_VD: Tensor, rows: Rows, rotations: Sequence[Rotation], states: Sequence[LayerState],
        taps: Sequence[int] = (), plans: Sequence[SpanPlan] = (),
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """As `Stack`."""
        writes = list(rows.writes) or [rows.slots_T] * len(rotations)
        places = Places(list(rotations), writes, [], [], [], cast("list[BlockPlan]", list(plans)))
        for part in rows.parts:
            places.counts.append(part.span.count)
        for view in rows.views:
            places.reads.append(view.read_BT)
            places.biases.append(view.bias_B1WT)
        last_E = None if rows.ends is None else rows.last_E
        hidden_ED, features_TF = self._blocks(ids_T, embed_VD, places, list(states), list(taps), last_E)
        return hidden_ED, features_TF
