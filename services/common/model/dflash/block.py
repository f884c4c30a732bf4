"""The drafter's half of a DFlash checkpoint: one non-causal forward over [anchor, MASK x (B - 1)]."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from services.common.kernels.argmax_token import argmax_of_product, argmax_token
from services.common.kernels.linear import linear
from services.common.kernels.linear.cublas import keep_order
from services.common.kernels.linear.int8_weight import Weight, quantised
from services.common.kernels.span_attention import seen_through
from services.common.kernels.span_attention.mask import OPEN
from services.common.model.checkpoint import resolve_folder
from services.common.model.dflash.reading import open_drafter
from services.common.model.dflash.spec import NORM, DrafterSpec, prefixes
from services.common.model.rows import Rows
from services.common.model.stack import draft_stack, rotation_table
from services.common.model.weights import LayerWeights, read_layer

_MANY_ROWS = 256
"""Of all blocks, from which on the last layer drops those that no draft is read from; fewer were not measured."""


@dataclass(frozen=True)
class Coupling:
    """The noise [B, K, V] that the target's draw adds to its scores, with weight 0 for greedy rows, and a scale [B].

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
        self._layers, self._norm_D = layers, norm_D
        self._masks = tuple(dict.fromkeys(spec.masks))
        self._stack = draft_stack(spec, layers, norm_D, [self._masks.index(mask) for mask in spec.masks])
        self._table = rotation_table(spec, spec.max_positions, norm_D.dtype, norm_D.device)

    def reach(self, context: int) -> None:
        """Serve contexts of this many tokens and the block after them, at any length that the drafter was trained on.

        Steps captured earlier keep the earlier length.
        """
        positions = context + self.spec.block_size
        if positions != self._table.positions:
            self._table = rotation_table(self.spec, positions, self._norm_D.dtype, self._norm_D.device)

    @property
    def int8(self) -> bool:
        """Whether products are by weights of eight bits."""
        return any(layer.int8 for layer in self._layers)

    @torch.no_grad()
    def seat(self, head_VD: Tensor) -> Weight | None:
        """Return a head of its own that drafts are scored with: a copy of eight bits, where products have eight."""
        return quantised(head_VD) if self.int8 else None

    @torch.no_grad()
    def propose(
        self,
        ids_BW: Tensor,
        rows: Rows,
        draft_kv_L2NSHD: Tensor,
        embed_VD: Tensor,
        head: Weight,
        count: int | None = None,
        coupling: Coupling | None = None,
    ) -> Tensor:
        """Return the `count` most likely tokens after each anchor [B, count] (default: all of the block's).

        With a coupling they are the tokens that the target draws with the highest chance.

        `ids_BW` are anchors and masks, `rows` one `plan_context` whose width is the block size; row j of the block
        predicts the token AT its own position, so row 0, the anchor's, is not read.
        """
        (part,) = rows.parts
        width = part.span.width
        take = width - 1 if count is None else count
        assert 0 < take < width, "a block of B rows proposes at most B - 1 tokens"
        if take < width - 1 and part.count >= _MANY_ROWS:
            rows = Rows(part, ends=range(1, take + 1))
        hidden_BWD = self.hidden(ids_BW, rows, draft_kv_L2NSHD, embed_VD)
        # One product over flat rows, because a strided batch would read the head once for each sequence.
        rows_RD = (hidden_BWD if rows.ends else hidden_BWD[:, 1 : take + 1]).reshape(-1, hidden_BWD.shape[-1])
        if coupling is not None:
            return argmax_token(coupling.apply(self._logits(rows_RD, head), take)).view(-1, take)
        # A scale above 0 and a bound keep the order.
        return argmax_of_product(rows_RD, head).view(-1, take)

    @torch.no_grad()
    def hidden(self, ids_BW: Tensor, rows: Rows, draft_kv_L2NSHD: Tensor, embed_VD: Tensor) -> Tensor:
        """Return the normalised hidden states of the block [B, W, D], or of the rows that are read in the end."""
        rotation = self._table.at(rows.positions_T)
        if self._masks != (OPEN,):
            (part,) = rows.parts
            rows = Rows(part, views=[seen_through(part.span, mask) for mask in self._masks], ends=rows.ends)
        states = [[kv_2NSHD] for kv_2NSHD in draft_kv_L2NSHD.unbind()]
        hidden_TD, _ = self._stack(ids_BW.flatten(), embed_VD, rows, rotation, states)
        return hidden_TD.view(len(ids_BW), -1, hidden_TD.shape[-1])

    def _logits(self, rows_RD: Tensor, head: Weight) -> Tensor:
        logits_RV, cap = linear(rows_RD, head), self.spec.logit_cap
        if self.spec.logit_scale != 1.0:
            logits_RV = logits_RV * self.spec.logit_scale
        return torch.tanh(logits_RV / cap) * cap if cap else logits_RV


def load_block(
    path: str | Path,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    random_weights: bool = False,
    int8: bool = False,
) -> DflashBlock:
    """Read the drafter's half of a drafter checkpoint; with `int8` its products are by weights of eight bits.

    Raises:
        ModelError: the checkpoint is damaged, incomplete, or of an unsupported shape.
    """
    where = torch.device(device)
    if where.type == "cuda":
        keep_order()
    spec, checkpoint = open_drafter(resolve_folder(path), where, random_weights)
    layers = []
    for prefix, layer in zip(prefixes(spec), spec.layers, strict=True):
        read = read_layer(checkpoint, layer, spec.hidden_size, prefix, dtype, where)
        layers.append(read.in_int8() if int8 else read)
    norm_D = checkpoint.read(NORM, (spec.hidden_size,), dtype).to(where)
    return DflashBlock(spec, layers, norm_D, checkpoint.revision)
