"""The target: a dense Qwen3 over spans of rows with paged K/V (Qwen3 technical report, 2025)."""

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
from services.common.model.config import TargetConfig, read_target_config
from services.common.model.errors import ModelError
from services.common.model.host import HostTarget
from services.common.model.layers import (
    LayerWeights,
    finish_block,
    layer_shapes,
    read_layer,
    rotation_table,
    store_projected,
)
from services.common.model.random_weights import RandomCheckpoint

_EMBED = "model.embed_tokens.weight"
_NORM = "model.norm.weight"
_HEAD = "lm_head.weight"


class Qwen3:
    """Weights and forward of a target; holds no request state. `lm_head_VD` is `embed_VD` itself when tied."""

    def __init__(
        self,
        config: TargetConfig,
        layers: Sequence[LayerWeights],
        embed_VD: Tensor,
        norm_D: Tensor,
        lm_head_VD: Tensor,
        revision: str,
    ) -> None:
        self.config = config
        self.revision = revision
        self.embed_VD = embed_VD
        self.lm_head_VD = lm_head_VD
        self._layers, self._norm_D = tuple(layers), norm_D
        self._host: HostTarget | None = None
        if not on_kernel(embed_VD):
            self._host = compiled(HostTarget(layers, norm_D, lm_head_VD, config))
            self._layers = ()
        self._table = rotation_table(config, config.max_position_embeddings, embed_VD.dtype, embed_VD.device)

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
        config = self.config
        shape = (config.num_hidden_layers, 2, blocks, block_size, config.num_key_value_heads, config.head_dim)
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
        eps = self.config.rms_norm_eps
        stream_TD = embedding(ids_BW.flatten(), self.embed_VD)
        normed = Normed(rms_norm(stream_TD, self._layers[0].input_norm_D, eps))
        norms = [layer.input_norm_D for layer in self._layers[1:]] + [self._norm_D]
        tapped: dict[int, Tensor] = {}
        for index, (layer, next_norm_D) in enumerate(zip(self._layers, norms, strict=True)):
            q_THD = store_projected(normed, layer, rotation, kv_L2NSHD[index], span.slots_T, eps)
            attended_BWF = attend_span(q_THD.view(*ids_BW.shape, *q_THD.shape[1:]), kv_L2NSHD[index], span)
            # A tapped stream is read again at the end.
            keep = index - 1 in tapped
            normed, stream_TD = finish_block(attended_BWF.flatten(0, 1), stream_TD, layer, next_norm_D, eps, keep)
            if index in taps:
                tapped[index] = stream_TD
        hidden_TD = rms_norm(stream_TD, self._norm_D, eps)
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
) -> Qwen3:
    """Read a Qwen3 checkpoint in the Hugging Face layout, or only its configuration with `random_weights`.

    Raises:
        ModelError: the checkpoint is damaged, incomplete, or of an unsupported shape.
    """
    folder, where = resolve_folder(path), torch.device(device)
    config = read_target_config(folder)
    checkpoint: TensorSource = RandomCheckpoint(folder, where) if random_weights else Checkpoint(folder)
    prefixes = [f"model.layers.{index}" for index in range(config.num_hidden_layers)]
    table = (config.vocab_size, config.hidden_size)
    shapes = {_EMBED: table, _NORM: (config.hidden_size,)}
    for prefix in prefixes:
        shapes.update(layer_shapes(config, prefix))
    has_head = not config.tie_word_embeddings or _HEAD in checkpoint.names
    checkpoint.refuse_other_than([*shapes, *([_HEAD] if has_head else [])])
    embed_VD = checkpoint.read(_EMBED, table, dtype)
    head_VD = checkpoint.read(_HEAD, table, dtype) if has_head else embed_VD
    if config.tie_word_embeddings and not torch.equal(embed_VD, head_VD):
        raise ModelError(f"{folder}: tensor {_HEAD} differs from {_EMBED}, though config.json has tie_word_embeddings")
    embed_VD = embed_VD.to(where)
    head_VD = embed_VD if config.tie_word_embeddings else head_VD.to(where)
    layers = [read_layer(checkpoint, config, prefix, dtype, where) for prefix in prefixes]
    norm_D = checkpoint.read(_NORM, (config.hidden_size,), dtype).to(where)
    return Qwen3(config, layers, embed_VD, norm_D, head_VD, checkpoint.revision)
