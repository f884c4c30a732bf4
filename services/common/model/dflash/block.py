"""The drafter's half of a DFlash checkpoint: one non-causal forward over [anchor, MASK x (B - 1)]."""

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
from services.common.kernels.linear import Normed
from services.common.kernels.rms_norm import rms_norm
from services.common.kernels.rope import Rotation
from services.common.kernels.span_attention import Span, attend_block
from services.common.model.checkpoint import resolve_folder
from services.common.model.dflash.spec import NORM, DrafterSpec, open_drafter, prefixes
from services.common.model.host import HostDraft
from services.common.model.layers import finish_block, rotation_table, store_projected
from services.common.model.weights import LayerWeights, read_layer


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

    def __init__(self, spec: DrafterSpec, layers: Sequence[LayerWeights], norm_D: Tensor, revision: str) -> None:
        self.spec = spec
        self.revision = revision
        self._layers, self._norm_D = tuple(layers), norm_D
        self._table = rotation_table(spec, spec.max_positions, norm_D.dtype, norm_D.device)
        self._host: HostDraft | None = None
        if not on_kernel(norm_D):
            self._host = compiled(HostDraft(layers, norm_D, spec))
            self._layers = ()

    def reach(self, context: int) -> None:
        """Serve contexts of this many tokens, and the block after them, whatever length the drafter was trained on.

        Steps captured before see the length of then.
        """
        positions = context + self.spec.block_size
        if positions != self._table.positions:
            self._table = rotation_table(self.spec, positions, self._norm_D.dtype, self._norm_D.device)

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
        spec, shape = self.spec, span.positions_BW.shape
        attention, eps = spec.attention, spec.norm_eps
        stream_TD = embedding(ids_BW.flatten(), embed_VD)
        normed = Normed(rms_norm(stream_TD, self._layers[0].input_norm_D, eps))
        norms = [layer.input_norm_D for layer in self._layers[1:]] + [self._norm_D]
        # The block's own keys and values: a layer's are read before the next one writes.
        own_2T1HD = stream_TD.new_empty((2, len(stream_TD), 1, attention.kv_heads, attention.head_dim))
        k_BWHD, v_BWHD = own_2T1HD.view(2, *shape, *own_2T1HD.shape[3:])
        for index, (layer, next_norm_D) in enumerate(zip(self._layers, norms, strict=True)):
            q_THD = store_projected(normed, layer, rotation, own_2T1HD, span.slots_T, spec)
            q_BWHD = q_THD.view(*shape, *q_THD.shape[1:])
            attended_BWF = attend_block(q_BWHD, k_BWHD, v_BWHD, draft_kv_L2NSHD[index], span)
            normed, stream_TD = finish_block(attended_BWF.flatten(0, 1), stream_TD, layer, next_norm_D, spec)
        return rms_norm(stream_TD, self._norm_D, eps).view(*shape, -1)


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
    spec, checkpoint = open_drafter(resolve_folder(path), where, random_weights)
    named = zip(prefixes(spec), spec.layers, strict=True)
    layers = [read_layer(checkpoint, layer, spec.hidden_size, prefix, dtype, where) for prefix, layer in named]
    norm_D = checkpoint.read(NORM, (spec.hidden_size,), dtype).to(where)
    return DflashBlock(spec, layers, norm_D, checkpoint.revision)
