"""The drafter's half of a checkpoint: one forward over [anchor, MASK x (R - 1)], then a head that chooses tokens."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from services.common.kernels.linear.cublas import keep_order
from services.common.kernels.linear.weight import Weight
from services.common.kernels.span_attention import seen_through
from services.common.kernels.span_attention.span import OPEN, Mask
from services.common.model.drafters import block_kind, open_drafter
from services.common.model.drafters.coupling import Coupling
from services.common.model.drafters.heads import DraftHead
from services.common.model.drafters.nodes import Candidates
from services.common.model.drafters.spec import NORM, DrafterSpec, LayerTensors, prefixes, table_shapes
from services.common.model.drafters.tables import Tables
from services.common.model.files.checkpoint import resolve_folder
from services.common.model.stack import Stack, rotation_table
from services.common.model.states.states import Rows
from services.common.model.weights.weights import read_layer

_MANY_ROWS = 256
"""Of all blocks, from which on the last layer drops those that no draft is read from; fewer were not measured."""


@dataclass(frozen=True)
class BlockParts:
    """What a checkpoint holds; `tables` are an embedding and a head of its own, by name, where it carries them.

    With `int8` its products are by weights of eight bits.
    """

    stack: Stack
    head: DraftHead
    tables: Mapping[str, Tensor]
    revision: str
    int8: bool = False


class DraftBlock:
    """The drafter's half: one forward over [anchor, MASK x (R - 1)] for each sequence."""

    def __init__(self, spec: DrafterSpec, parts: BlockParts, dtype: torch.dtype, device: torch.device) -> None:
        self.spec = spec
        self.revision = parts.revision
        self.int8 = parts.int8
        self.sharpness = parts.head.sharpness
        self._stack, self._head, self._tables = parts.stack, parts.head, Tables(parts.tables, parts.int8, spec.tied)
        self._first_row = spec.first_row
        self._masks = _views(spec)
        self._dtype, self._device = dtype, device
        self._table = rotation_table(spec, spec.max_positions, dtype, device)

    def reach(self, context: int) -> None:
        """Serve contexts of this many tokens and the block after them, at any length that the drafter was trained on.

        Steps captured earlier keep the earlier length.
        """
        positions = context + self.spec.block_size
        if positions != self._table.positions:
            self._table = rotation_table(self.spec, positions, self._dtype, self._device)

    def seat(self, embed_VD: Tensor, head_VD: Tensor | None) -> tuple[Tensor, Weight]:
        """Return the embedding and the head to draft with, for a target's tables; without `head_VD` they are one.

        A table of the checkpoint's own is used where it differs. The head is a copy of eight bits where products are.
        """
        return self._tables.seat(embed_VD, head_VD)

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
        """Return the first `count` drafts after each anchor [B, count] (default: all of the block's).

        `ids_BW` are anchors and masks, `rows` one `plan_context` as wide. Row j of the block predicts the token at its
        own position, so that the anchor's is not read, or, where the anchor predicts, the token behind it.
        """
        hidden_BKD = self._drafted(ids_BW, rows, draft_kv_L2NSHD, embed_VD, count)
        return self._head.choose(hidden_BKD, head, ids_BW[:, 0], coupling)

    @torch.no_grad()
    def rank(
        self,
        ids_BW: Tensor,
        rows: Rows,
        draft_kv_L2NSHD: Tensor,
        embed_VD: Tensor,
        head: Weight,
        count: int | None = None,
        coupling: Coupling | None = None,
    ) -> Candidates:
        """Return the best tokens of the same positions, and how likely each is."""
        hidden_BKD = self._drafted(ids_BW, rows, draft_kv_L2NSHD, embed_VD, count)
        return self._head.rank(hidden_BKD, head, ids_BW[:, 0], coupling)

    def _drafted(
        self, ids_BW: Tensor, rows: Rows, draft_kv_L2NSHD: Tensor, embed_VD: Tensor, count: int | None
    ) -> Tensor:
        """Return the hidden states that drafts are chosen from [B, count, D]."""
        (part,) = rows.parts
        first, width = self._first_row, part.span.width
        take = width - first if count is None else count
        assert 0 < take <= width - first, "a block has no row for so many drafts"
        if take < width - first and part.span.count >= _MANY_ROWS:
            rows = Rows(part, ends=range(first, first + take))
        hidden_BWD = self.hidden(ids_BW, rows, draft_kv_L2NSHD, embed_VD)
        return hidden_BWD if rows.ends else hidden_BWD[:, first : first + take]

    @torch.no_grad()
    def hidden(self, ids_BW: Tensor, rows: Rows, draft_kv_L2NSHD: Tensor, embed_VD: Tensor) -> Tensor:
        """Return the normalised hidden states of the block [B, W, D], or of the rows that are read in the end."""
        rotation = self._table.at(rows.positions_T)
        if self._masks != (OPEN,):
            (part,) = rows.parts
            rows = Rows(part, views=[seen_through(part.span, mask) for mask in self._masks], ends=rows.ends)
        states = [[kv_2NSHD] for kv_2NSHD in draft_kv_L2NSHD.unbind()]
        hidden_TD, _ = self._stack(ids_BW.flatten(), embed_VD, rows, [rotation], states)
        return hidden_TD.view(len(ids_BW), -1, hidden_TD.shape[-1])


def load_block(
    path: str | Path,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    random_weights: bool = False,
    int8: bool = False,
    anchored: bool | None = None,
    candidates: int = 0,
    confident: bool = False,
) -> DraftBlock:
    """Read the drafter's half of a drafter checkpoint; with `int8` its products are by weights of eight bits.

    `anchored` is as `read_any_spec` has it, `candidates` as `DraftHead.narrow`, 0: all that the checkpoint has. With
    `confident` what the file says of its own confidence counts in the scores of candidates.

    Raises:
        ModelError: the checkpoint is damaged, incomplete, or of an unsupported shape.
    """
    where = torch.device(device)
    if where.type == "cuda":
        keep_order()
    spec, checkpoint = open_drafter(resolve_folder(path), where, random_weights, anchored)
    spec = spec if confident else spec.unsure()
    layers = []
    for prefix, layer in zip(prefixes(spec), spec.layers, strict=True):
        read = read_layer(checkpoint, layer, spec.hidden_size, prefix, dtype, where)
        layers.append(read.in_int8() if int8 else read)
    norm_D = checkpoint.read(NORM, (spec.hidden_size,), dtype).to(where)
    views = _views(spec)
    tensors = LayerTensors(spec, layers, norm_D, [views.index(mask) for mask in spec.masks])
    kind, shapes = block_kind(spec), table_shapes(spec)
    head = kind.read_head(spec, checkpoint, dtype, where)
    if candidates:
        head.narrow(candidates)
    parts = BlockParts(
        stack=kind.read_stack(tensors, checkpoint, dtype, where),
        head=head,
        tables={name: checkpoint.read(name, shapes[name], dtype).to(where) for name in spec.own_tables},
        revision=checkpoint.revision,
        int8=int8,
    )
    return DraftBlock(spec, parts, dtype, where)


def _views(spec: DrafterSpec) -> tuple[Mask, ...]:
    """Return what rows of a block see, each once."""
    return tuple(dict.fromkeys(spec.masks))
