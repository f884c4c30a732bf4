"""The target: a model of any family over spans of rows."""

from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from services.common.kernels.compiled import compiled
from services.common.kernels.dispatch import on_kernel
from services.common.kernels.embedding import embedding
from services.common.kernels.linear import Normed
from services.common.kernels.rms_norm import rms_norm
from services.common.kernels.rope import Rotation
from services.common.kernels.span_attention import Span, attend_span
from services.common.model.checkpoint import Checkpoint, TensorSource, resolve_folder
from services.common.model.families import open_family
from services.common.model.host import HostTarget
from services.common.model.layers import finish_block, rotation_table, store_projected
from services.common.model.random_weights import RandomCheckpoint
from services.common.model.spec import ModelSpec
from services.common.model.weights import LayerWeights, ModelWeights


class Target:
    """Weights and forward of a model; holds no request state. `lm_head_VD` is `embed_VD` itself when tied."""

    def __init__(self, spec: ModelSpec, weights: ModelWeights) -> None:
        self.spec = spec
        self.revision, self.elements = weights.revision, weights.elements
        self.embed_VD, self.lm_head_VD = weights.embed_VD, weights.lm_head_VD
        self._layers: tuple[LayerWeights, ...] = weights.layers
        self._norm_D = weights.norm_D
        self._host: HostTarget | None = None
        if not on_kernel(self.embed_VD):
            self._host = compiled(HostTarget(weights.layers, weights.norm_D, weights.lm_head_VD, spec))
            self._layers = ()
        self._table = rotation_table(spec, spec.max_positions, self.dtype, self.device)

    @property
    def dtype(self) -> torch.dtype:
        """Type of weights, K/V and hidden states."""
        return self.embed_VD.dtype

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.embed_VD.device

    def use_shared(self, embed_VD: Tensor, lm_head_VD: Tensor | None) -> None:
        """Use copies of the embedding and of the head (None when tied) that live in shared memory."""
        assert embed_VD.shape == self.embed_VD.shape, "the shared embedding has another shape"
        self.embed_VD = embed_VD
        self.lm_head_VD = embed_VD if lm_head_VD is None else lm_head_VD

    def new_kv(self, blocks: int, block_size: int) -> Tensor:
        """Return zeroed K/V [L, 2, N, S, Hkv, Dh]; block 0 is the pad block."""
        attention = self.spec.attention
        shape = (len(self.spec.layers), 2, blocks, block_size, attention.kv_heads, attention.head_dim)
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    @torch.no_grad()
    def forward_span(
        self, ids_BW: Tensor, span: Span, kv_L2NSHD: Tensor, taps: Sequence[int] = ()
    ) -> tuple[Tensor, Tensor | None]:
        """Run the rows of a span, writing their K/V.

        Returns:
            Normalised hidden states [B, W, D], and the residual streams after the blocks `taps`, concatenated in that
            order [B, W, len(taps) * D] (None without taps). The last block's stream is normalised.
        """
        rotation = self._table.at(span.positions_BW.flatten())
        if self._host is None:
            return self._by_kernels(ids_BW, span, rotation, kv_L2NSHD, taps)
        hidden_TD, features_TF = self._host(
            ids_BW.flatten(), self.embed_VD, rotation, kv_L2NSHD, span.slots_T, span.read_BT, span.bias_B1WT, list(taps)
        )
        return hidden_TD.view(*ids_BW.shape, -1), None if features_TF is None else features_TF.view(*ids_BW.shape, -1)

    @torch.no_grad()
    def logits(self, hidden: Tensor, room_TV: Tensor | None = None) -> Tensor:
        """Return the logits [..., V] of normalised hidden states: on the CPU in float32 or wider.

        `room_TV` is memory for them, one row for each hidden state; the CPU path makes its own.
        """
        if self._host is None:
            if room_TV is None:
                return F.linear(hidden, self.lm_head_VD)
            torch.mm(hidden.flatten(0, -2), self.lm_head_VD.t(), out=room_TV)
            return room_TV.view(*hidden.shape[:-1], -1)
        logits = self._host.logits(hidden.flatten(0, -2)).view(*hidden.shape[:-1], -1)
        return logits if logits.dtype == torch.float64 else logits.float()

    def _by_kernels(
        self, ids_BW: Tensor, span: Span, rotation: Rotation, kv_L2NSHD: Tensor, taps: Sequence[int]
    ) -> tuple[Tensor, Tensor | None]:
        spec = self.spec
        eps, offset = spec.norm_eps, spec.norm_offset
        stream_TD = embedding(ids_BW.flatten(), self.embed_VD)
        normed = Normed(rms_norm(stream_TD, self._layers[0].input_norm_D, eps, offset))
        norms = [layer.input_norm_D for layer in self._layers[1:]] + [self._norm_D]
        tapped: dict[int, Tensor] = {}
        for index, (layer, next_norm_D) in enumerate(zip(self._layers, norms, strict=True)):
            q_THD = store_projected(normed, layer, rotation, kv_L2NSHD[index], span.slots_T, spec)
            attended_BWF = attend_span(q_THD.view(*ids_BW.shape, *q_THD.shape[1:]), kv_L2NSHD[index], span)
            # A tapped stream is read again at the end.
            keep = index - 1 in tapped
            normed, stream_TD = finish_block(attended_BWF.flatten(0, 1), stream_TD, layer, next_norm_D, spec, keep)
            if index in taps:
                tapped[index] = stream_TD
        hidden_TD = rms_norm(stream_TD, self._norm_D, eps, offset)
        hidden_BWD = hidden_TD.view(*ids_BW.shape, -1)
        if not taps:
            return hidden_BWD, None
        tapped[len(self._layers) - 1] = hidden_TD
        return hidden_BWD, torch.cat([tapped[index] for index in taps], -1).view(*ids_BW.shape, -1)


def load_target(
    path: str | Path,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    random_weights: bool = False,
) -> Target:
    """Read a checkpoint of any family, or only its configuration with `random_weights`.

    Raises:
        ModelError: the checkpoint is damaged, incomplete, or of an unsupported shape.
    """
    folder, where = resolve_folder(path), torch.device(device)
    family, spec = open_family(folder)
    checkpoint: TensorSource = RandomCheckpoint(folder, where) if random_weights else Checkpoint(folder)
    return Target(spec, family.read_weights(spec, checkpoint, dtype, where))
