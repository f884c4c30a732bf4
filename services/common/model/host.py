"""The CPU path of both models, compiled by TorchScript: a block is some fifty small operators, and at a few rows Python
between them would cost more than they do. Composed of the operators' references, which state their meaning.
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor, nn

from services.common.kernels.linear.product import product
from services.common.kernels.rms_norm.reference import add_rms_norm, rms_norm
from services.common.kernels.rope import Rotation
from services.common.kernels.rope.reference import norm_rope
from services.common.kernels.span_attention.reference import attend, gathered, room_for
from services.common.kernels.store_context.reference import store_context
from services.common.kernels.store_qkv.reference import store_qkv
from services.common.kernels.swiglu.reference import swiglu
from services.common.model.spec import StackSpec
from services.common.model.weights import LayerWeights


class HostBlock(nn.Module):
    """One block, with the norm that comes after it; `qkv` maps rows to queries, keys and values."""

    offset: Final[float]

    def __init__(self, layer: LayerWeights, next_norm_D: Tensor, spec: StackSpec) -> None:
        super().__init__()
        self.qkv, self.o = product(layer.mixer.qkv_FD, layer.mixer.bias_F), product(layer.mixer.o_DF)
        self.gate_up, self.down = product(layer.ffn.gate_up_FD), product(layer.ffn.down_DF)
        self.head_norm_HD = layer.mixer.head_norm_HD
        self.post_norm_D, self.next_norm_D = layer.post_norm_D, next_norm_D
        attention = spec.attention
        self.heads, self.kv_heads = attention.heads, attention.kv_heads
        self.head_dim, self.eps, self.offset = attention.head_dim, spec.norm_eps, spec.norm_offset

    def finish(self, attended_BWF: Tensor, stream_TD: Tensor) -> tuple[Tensor, Tensor]:
        """Apply the output projection and the feed-forward half; return normed rows and residual stream."""
        mixed_TD = self.o(attended_BWF.flatten(0, 1))
        normed_TD, stream_TD = add_rms_norm(mixed_TD, stream_TD, self.post_norm_D, self.eps, self.offset)
        branch_TD = self.down(swiglu(self.gate_up(normed_TD)))
        return add_rms_norm(branch_TD, stream_TD, self.next_norm_D, self.eps, self.offset)


class TargetBlock(HostBlock):
    """A block that stores the K/V of its rows and lets them attend causally."""

    def forward(
        self, normed_TD: Tensor, stream_TD: Tensor, rotation: Rotation, kv_2NSHD: Tensor, slots_T: Tensor,
        read_BT: Tensor, room_2BTHD: Tensor, bias_B1WT: Tensor | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Return normed rows and residual stream after the block, both [T, D]."""
        mixed_TF = self.qkv(normed_TD)
        q_THD = store_qkv(mixed_TF, self.head_norm_HD, rotation, kv_2NSHD, slots_T, self.eps, offset=self.offset)
        keys_BTHD, values_BTHD = gathered(kv_2NSHD, read_BT, room_2BTHD)
        q_BWHD = q_THD.unflatten(0, [read_BT.shape[0], -1])
        return self.finish(attend(q_BWHD, keys_BTHD, values_BTHD, bias_B1WT), stream_TD)


class DraftBlock(HostBlock):
    """A block whose rows attend to the context and to one another."""

    def forward(
        self, normed_TD: Tensor, stream_TD: Tensor, rotation: Rotation, kv_2NSHD: Tensor, read_BT: Tensor,
        room_2BTHD: Tensor, bias_B1WT: Tensor | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Return normed rows and residual stream after the block, both [T, D]."""
        turning = self.heads + self.kv_heads
        mixed_BWHD = self.qkv(normed_TD).view(read_BT.shape[0], -1, turning + self.kv_heads, self.head_dim)
        turned_THD = norm_rope(mixed_BWHD[:, :, :turning].flatten(0, 1), self.head_norm_HD, rotation, self.eps)
        turned_BWHD = turned_THD.view(read_BT.shape[0], -1, turning, self.head_dim)
        keys_BTHD, values_BTHD = gathered(kv_2NSHD, read_BT, room_2BTHD)
        keys_BTHD = torch.cat((keys_BTHD, turned_BWHD[:, :, self.heads :]), 1)
        values_BTHD = torch.cat((values_BTHD, mixed_BWHD[:, :, turning:]), 1)
        attended_BWF = attend(turned_BWHD[:, :, : self.heads], keys_BTHD, values_BTHD, bias_B1WT)
        return self.finish(attended_BWF, stream_TD)


class HostTarget(nn.Module):
    """A target's blocks and head."""

    offset: Final[float]

    def __init__(self, layers: Sequence[LayerWeights], norm_D: Tensor, lm_head_VD: Tensor, spec: StackSpec) -> None:
        super().__init__()
        self.first_norm_D, self.eps, self.offset = layers[0].input_norm_D, spec.norm_eps, spec.norm_offset
        norms = [layer.input_norm_D for layer in layers[1:]] + [norm_D]
        self.blocks = nn.ModuleList(TargetBlock(layer, norm, spec) for layer, norm in zip(layers, norms, strict=True))
        self.head = product(lm_head_VD)

    def forward(
        self, ids_T: Tensor, embed_VD: Tensor, rotation: Rotation, kv_L2NSHD: Tensor, slots_T: Tensor,
        read_BT: Tensor, bias_B1WT: Tensor | None, taps: list[int],
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Return normalised hidden states [T, D], and the residual streams after `taps`, concatenated.

        The last block's is normalised: what Hugging Face calls its hidden states, and drafters were trained on.
        """
        stream_TD = embed_VD.index_select(0, ids_T)
        normed_TD = rms_norm(stream_TD, self.first_norm_D, self.eps, self.offset)
        room = room_for(kv_L2NSHD, read_BT)
        streams: list[Tensor] = []
        for index, block in enumerate(self.blocks):
            normed_TD, stream_TD = block(
                normed_TD, stream_TD, rotation, kv_L2NSHD[index], slots_T, read_BT, room, bias_B1WT
            )
            streams.append(stream_TD)
        if len(taps) == 0:
            return normed_TD, None
        streams[-1] = normed_TD
        return normed_TD, torch.cat([streams[tap] for tap in taps], -1)

    @torch.jit.export
    def logits(self, hidden_TD: Tensor) -> Tensor:
        """Return the logits [T, V] of normalised hidden states."""
        logits_TV: Tensor = self.head(hidden_TD)
        return logits_TV


class HostDraft(nn.Module):
    """A drafter's blocks."""

    def __init__(self, layers: Sequence[LayerWeights], norm_D: Tensor, spec: StackSpec) -> None:
        super().__init__()
        self.first_norm_D, self.eps = layers[0].input_norm_D, spec.norm_eps
        norms = [layer.input_norm_D for layer in layers[1:]] + [norm_D]
        self.blocks = nn.ModuleList(DraftBlock(layer, norm, spec) for layer, norm in zip(layers, norms, strict=True))

    def forward(
        self, ids_T: Tensor, embed_VD: Tensor, rotation: Rotation, kv_L2NSHD: Tensor, read_BT: Tensor,
        bias_B1WT: Tensor | None,
    ) -> Tensor:  # fmt: skip
        """Return normalised hidden states [T, D]."""
        stream_TD = embed_VD.index_select(0, ids_T)
        normed_TD = rms_norm(stream_TD, self.first_norm_D, self.eps)
        room = room_for(kv_L2NSHD, read_BT)
        for index, block in enumerate(self.blocks):
            normed_TD, stream_TD = block(normed_TD, stream_TD, rotation, kv_L2NSHD[index], read_BT, room, bias_B1WT)
        return normed_TD


class HostContext(nn.Module):
    """The target's half of a drafter: features to context K/V."""

    def __init__(
        self, fc_DF: Tensor, hidden_norm_D: Tensor, kv_FD: Tensor, key_norm_LHD: Tensor, spec: StackSpec
    ) -> None:
        super().__init__()
        self.fc, self.kv = product(fc_DF), product(kv_FD)
        self.hidden_norm_D, self.key_norm_LHD, self.eps = hidden_norm_D, key_norm_LHD, spec.norm_eps

    def forward(self, features_TF: Tensor, rotation: Rotation, kv_L2NSHD: Tensor, slots_T: Tensor) -> None:
        """Write the context K/V of rows at their slots."""
        context_TD = rms_norm(self.fc(features_TF), self.hidden_norm_D, self.eps)
        store_context(self.kv(context_TD), self.key_norm_LHD, rotation, kv_L2NSHD, slots_T, self.eps)
