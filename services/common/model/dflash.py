"""A DFlash drafter, split by tensor name: the target's half writes context K/V, the drafter's half proposes.

Published architecture: github.com/z-lab/dflash. Context rows never get a query: their K/V per layer is a projection of
the target's features alone, so it is append-only and the target can write it while it verifies.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from services.common.kernels.best_token import best_of_product, best_token
from services.common.kernels.compiled import compiled
from services.common.kernels.dispatch import on_kernel
from services.common.kernels.embedding import embedding
from services.common.kernels.linear import Normed, linear
from services.common.kernels.rms_norm import rms_norm
from services.common.kernels.rope import Rotation
from services.common.kernels.span_attention import Span, attend_block
from services.common.kernels.store_context import store_context
from services.common.model.checkpoint import Checkpoint, TensorSource, resolve_folder
from services.common.model.config import DrafterConfig, TargetConfig, read_drafter_config
from services.common.model.errors import ModelError
from services.common.model.host import HostContext, HostDraft
from services.common.model.layers import (
    LayerWeights,
    finish_block,
    layer_shapes,
    read_layer,
    rotation_table,
    store_projected,
)
from services.common.model.qwen3 import Qwen3
from services.common.model.random_weights import RandomCheckpoint

_LOG = logging.getLogger(__name__)
_FC = "fc.weight"
_HIDDEN_NORM = "hidden_norm.weight"
_NORM = "norm.weight"


class DflashContext:
    """The target's half: features -> fc -> hidden_norm -> keys and values of every drafter layer."""

    def __init__(
        self,
        config: DrafterConfig,
        fc_DF: Tensor,
        hidden_norm_D: Tensor,
        kv_FD: Tensor,
        key_norms_LD: Tensor,
        revision: str,
        positions: int,
    ) -> None:
        """`positions` is the target's context: the drafter's own says what it was trained on, not where it ends."""
        self.config = config
        self.revision = revision
        self._fc_DF, self._kv_FD, self._hidden_norm_D = fc_DF, kv_FD, hidden_norm_D
        self._key_norm_LHD = key_norms_LD[:, None].repeat(1, config.num_key_value_heads, 1)
        self._table = rotation_table(config, positions, fc_DF.dtype, fc_DF.device)
        self._host: HostContext | None = None
        if not on_kernel(fc_DF):
            self._host = compiled(HostContext(fc_DF, hidden_norm_D, kv_FD, self._key_norm_LHD, config))

    @property
    def dtype(self) -> torch.dtype:
        """Type of weights and context K/V."""
        return self._fc_DF.dtype

    @property
    def taps(self) -> tuple[int, ...]:
        """Blocks of the target whose residual streams make the features."""
        return self.config.target_layer_ids

    def new_kv(self, blocks: int, block_size: int) -> Tensor:
        """Return zeroed context K/V [Ld, 2, N, S, Hkv, Dh] for the same block ids as the target's."""
        config = self.config
        shape = (config.num_hidden_layers, 2, blocks, block_size, config.num_key_value_heads, config.head_dim)
        return torch.zeros(shape, dtype=self.dtype, device=self._fc_DF.device)

    @torch.no_grad()
    def write(self, features_BWF: Tensor, span: Span, draft_kv_L2NSHD: Tensor) -> None:
        """Write the context K/V of a span's rows at their own positions and slots.

        Rows of drafts that turn out to be rejected may be written: positions from the new length on are never read
        before they are written again.
        """
        rotation = self._table.at(span.positions_BW.flatten())
        if self._host is None:
            self._by_kernels(features_BWF, span, rotation, draft_kv_L2NSHD)
        else:
            self._host(features_BWF.flatten(0, 1), rotation, draft_kv_L2NSHD, span.slots_T)

    def _by_kernels(self, features_BWF: Tensor, span: Span, rotation: Rotation, draft_kv_L2NSHD: Tensor) -> None:
        eps = self.config.rms_norm_eps
        fused_TD = linear(features_BWF.flatten(0, 1), self._fc_DF)
        context_TD = rms_norm(fused_TD, self._hidden_norm_D, eps)
        mixed_TF = linear(context_TD, self._kv_FD)
        store_context(mixed_TF, self._key_norm_LHD, rotation, draft_kv_L2NSHD, span.slots_T, eps)


@dataclass(frozen=True)
class Coupling:
    """What the target's draw will add to its own scores: noise [B, K, V], weighed 0 for greedy rows, and a scale [B].

    The target draws the argmax of logits / temperature + noise; a drafter that adds the same noise to its own logits
    agrees more often than one that guesses the mode (Gumbel coupling, arXiv:2408.07978).
    """

    noise_BKV: Tensor
    scale_B: Tensor
    weight_B: Tensor

    def apply(self, logits_RV: Tensor, count: int) -> Tensor:
        """Return the scores of flat rows [B * count, V]."""
        logits_BKV = logits_RV.view(-1, count, logits_RV.shape[-1])
        scores_BKV = logits_BKV * self.scale_B[:, None, None] + self.noise_BKV * self.weight_B[:, None, None]
        return scores_BKV.flatten(0, 1)


class DflashBlock:
    """The drafter's half: one non-causal forward over [anchor, MASK x (B - 1)]."""

    def __init__(self, config: DrafterConfig, layers: Sequence[LayerWeights], norm_D: Tensor, revision: str) -> None:
        self.config = config
        self.revision = revision
        self._layers, self._norm_D = tuple(layers), norm_D
        self._table = rotation_table(config, config.max_position_embeddings, norm_D.dtype, norm_D.device)
        self._host: HostDraft | None = None
        if not on_kernel(norm_D):
            self._host = compiled(HostDraft(layers, norm_D, config))
            self._layers = ()

    def reach(self, context: int) -> None:
        """Serve contexts of this many tokens, and the block after them, whatever length the drafter was trained on.

        Steps captured before see the length of then.
        """
        positions = context + self.config.block_size
        if positions != self._table.positions:
            self._table = rotation_table(self.config, positions, self._norm_D.dtype, self._norm_D.device)

    @torch.no_grad()
    def propose(
        self,
        ids_BW: Tensor,
        span: Span,
        draft_kv_L2NSHD: Tensor,
        embed_VD: Tensor,
        lm_head_VD: Tensor,
        count: int | None = None,
        coupling: Coupling | None = None,
    ) -> Tensor:
        """Return the `count` most likely tokens after each anchor [B, count] (default: all of the block's).

        With a coupling they are the likeliest to be what the target will draw.

        `ids_BW` are anchors and masks, `span` a `plan_context` whose width is the block size; row j of the block
        predicts the token AT its own position, so row 0, the anchor's, is not read.
        """
        take = span.width - 1 if count is None else count
        assert 0 < take < span.width, "a block of B rows proposes at most B - 1 tokens"
        hidden_BWD = self.hidden(ids_BW, span, draft_kv_L2NSHD, embed_VD)
        # One product over flat rows: a strided batch would read the head once for each sequence.
        rows_RD = hidden_BWD[:, 1 : take + 1].reshape(-1, hidden_BWD.shape[-1])
        if coupling is not None:
            return best_token(coupling.apply(F.linear(rows_RD, lm_head_VD), take)).view(-1, take)
        return best_of_product(rows_RD, lm_head_VD).view(-1, take)

    @torch.no_grad()
    def hidden(self, ids_BW: Tensor, span: Span, draft_kv_L2NSHD: Tensor, embed_VD: Tensor) -> Tensor:
        """Return the normalised hidden states of the block [B, W, D]."""
        rotation = self._table.at(span.positions_BW.flatten())
        if self._host is None:
            return self._by_kernels(ids_BW, span, rotation, draft_kv_L2NSHD, embed_VD)
        hidden_TD: Tensor = self._host(
            ids_BW.flatten(), embed_VD, rotation, draft_kv_L2NSHD, span.read_BT, span.bias_B1WT
        )
        return hidden_TD.view(*ids_BW.shape, -1)

    def _by_kernels(
        self, ids_BW: Tensor, span: Span, rotation: Rotation, draft_kv_L2NSHD: Tensor, embed_VD: Tensor
    ) -> Tensor:
        config, eps, shape = self.config, self.config.rms_norm_eps, span.positions_BW.shape
        stream_TD = embedding(ids_BW.flatten(), embed_VD)
        normed = Normed(rms_norm(stream_TD, self._layers[0].input_norm_D, eps))
        norms = [layer.input_norm_D for layer in self._layers[1:]] + [self._norm_D]
        # The block's own keys and values: a layer's are read before the next one writes.
        own_2T1HD = stream_TD.new_empty((2, len(stream_TD), 1, config.num_key_value_heads, config.head_dim))
        k_BWHD, v_BWHD = own_2T1HD.view(2, *shape, *own_2T1HD.shape[3:])
        for index, (layer, next_norm_D) in enumerate(zip(self._layers, norms, strict=True)):
            q_THD = store_projected(normed, layer, rotation, own_2T1HD, span.slots_T, eps)
            q_BWHD = q_THD.view(*shape, *q_THD.shape[1:])
            attended_BWF = attend_block(q_BWHD, k_BWHD, v_BWHD, draft_kv_L2NSHD[index], span)
            normed, stream_TD = finish_block(attended_BWF.flatten(0, 1), stream_TD, layer, next_norm_D, eps)
        return rms_norm(stream_TD, self._norm_D, eps).view(*shape, -1)


def load_context(path: str | Path, target: Qwen3, random_weights: bool = False) -> DflashContext:
    """Read the target's half of a drafter checkpoint and check that it was made for this target.

    Raises:
        ModelError: the checkpoint is damaged, or belongs to another target.
    """
    folder = resolve_folder(path)
    config, checkpoint = _open(folder, target.device, random_weights)
    _check_pair(folder, config, target.config)
    positions = target.config.max_position_embeddings
    if config.max_position_embeddings < positions:
        _LOG.warning(
            "%s: the drafter was made for %d positions, the target for %d: it drafts in all of them, "
            "but fewer drafts may be accepted beyond its own", folder, config.max_position_embeddings, positions
        )  # fmt: skip
    dtype, device = target.dtype, target.device
    fc_DF = checkpoint.read(_FC, _shapes(config)[_FC], dtype).to(device)
    parts, norms = [], []
    for prefix in _prefixes(config):
        shapes = layer_shapes(config, prefix)
        for name in ("k_proj", "v_proj"):
            full = f"{prefix}.self_attn.{name}.weight"
            parts.append(checkpoint.read(full, shapes[full], dtype))
        norm = f"{prefix}.self_attn.k_norm.weight"
        norms.append(checkpoint.read(norm, shapes[norm], dtype))
    hidden_norm_D = checkpoint.read(_HIDDEN_NORM, (config.hidden_size,), dtype).to(device)
    kv_FD, norms_LD = torch.cat(parts).to(device), torch.stack(norms).to(device)
    return DflashContext(config, fc_DF, hidden_norm_D, kv_FD, norms_LD, checkpoint.revision, positions)


def load_block(
    path: str | Path,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    random_weights: bool = False,
) -> DflashBlock:
    """Read the drafter's half of a drafter checkpoint.

    Raises:
        ModelError: the checkpoint is damaged, incomplete, or of an unsupported shape.
    """
    where = torch.device(device)
    config, checkpoint = _open(resolve_folder(path), where, random_weights)
    layers = [read_layer(checkpoint, config, prefix, dtype, where) for prefix in _prefixes(config)]
    norm_D = checkpoint.read(_NORM, (config.hidden_size,), dtype).to(where)
    return DflashBlock(config, layers, norm_D, checkpoint.revision)


def _open(folder: Path, device: torch.device, random_weights: bool) -> tuple[DrafterConfig, TensorSource]:
    config = read_drafter_config(folder)
    checkpoint: TensorSource = RandomCheckpoint(folder, device) if random_weights else Checkpoint(folder)
    checkpoint.refuse_other_than(_shapes(config))
    return config, checkpoint


def _prefixes(config: DrafterConfig) -> list[str]:
    return [f"layers.{index}" for index in range(config.num_hidden_layers)]


def _shapes(config: DrafterConfig) -> dict[str, tuple[int, ...]]:
    width = config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {
        _FC: (width, len(config.target_layer_ids) * width), _HIDDEN_NORM: (width,), _NORM: (width,)
    }  # fmt: skip
    for prefix in _prefixes(config):
        shapes.update(layer_shapes(config, prefix))
    return shapes


def _check_pair(folder: Path, drafter: DrafterConfig, target: TargetConfig) -> None:
    for name, other in (("hidden_size", target.hidden_size), ("vocab_size", target.vocab_size),
                        ("num_target_layers", target.num_hidden_layers)):  # fmt: skip
        if getattr(drafter, name) != other:
            raise ModelError(
                f"{folder}/config.json: {name}: {getattr(drafter, name)} differs from the target's {other}"
            )
