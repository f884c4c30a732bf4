"""The drafter's half of a chain: K steps of its one layer, each by the token and the state of the step before."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from services.common.kernels.argmax_token import argmax_of_product, argmax_token
from services.common.kernels.embedding import embedding
from services.common.kernels.linear import linear
from services.common.kernels.linear.cublas import keep_order
from services.common.kernels.linear.weight import Weight
from services.common.kernels.span_attention import Span
from services.common.model.drafters import chain_kind, open_tensors, read_any_spec
from services.common.model.drafters.chain_cell import ChainParts, chain_cell
from services.common.model.drafters.coupling import Coupling
from services.common.model.drafters.spec import ChainSpec, table_shapes
from services.common.model.drafters.tables import Tables
from services.common.model.drafters.vocabulary import Vocabulary, read_vocabulary
from services.common.model.fields.errors import ModelError
from services.common.model.files.checkpoint import resolve_folder
from services.common.model.stack import rotation_table

MOST_STEPS = 64
"""Steps for which there are positions behind a full context; no round is as wide."""


class DraftChain:
    """Drafts of any number: a chain has no end of its own. Keys and values of its rows live for one call."""

    sharpness = 1.0

    def __init__(
        self, spec: ChainSpec, parts: ChainParts, tables: Tables, vocabulary: Vocabulary, revision: str
    ) -> None:
        self.spec = spec
        self.revision = revision
        self.dtype, self._device = parts.norm_D.dtype, parts.norm_D.device
        self._cell, self._tables, self._vocabulary = chain_cell(spec, parts), tables, vocabulary
        self._table = rotation_table(spec, spec.max_positions, self.dtype, self._device)

    def reach(self, context: int) -> None:
        """Serve contexts of this many tokens and the chain after them, at any length that it was trained on."""
        positions = context + MOST_STEPS
        if positions != self._table.positions:
            self._table = rotation_table(self.spec, positions, self.dtype, self._device)

    def seat(self, embed_VD: Tensor, head_VD: Tensor | None) -> tuple[Tensor, Weight]:
        """Return the embedding and the head to draft with, for a target's tables, as `DraftBlock.seat`."""
        return self._tables.seat(embed_VD, head_VD)

    @torch.no_grad()
    def propose(
        self,
        anchor_B: Tensor,
        seed_BD: Tensor,
        span: Span,
        draft_kv_L2NSHD: Tensor,
        embed_VD: Tensor,
        head: Weight,
        coupling: Coupling | None = None,
    ) -> Tensor:
        """Return the drafts after each anchor [B, K] for a `plan_context` of K rows.

        `seed_BD` are the states of the positions before the anchors. Context from position 1 on is read.
        """
        room: Any = self._cell.room(draft_kv_L2NSHD[0], span)
        if coupling is not None:
            coupling = self._vocabulary.coupling(coupling)
        token_B, state_BD, drafts = anchor_B, seed_BD, []
        for step in range(span.width):
            rotation = self._table.at(span.positions_BW[:, step])
            embedded_BD = embedding(token_B, embed_VD, self.spec.embed_scale)
            hidden_BD, state_BD = self._cell(embedded_BD, state_BD, rotation, room, step)
            token_B = self._vocabulary.tokens(_best(hidden_BD, head, coupling, step))
            drafts.append(token_B)
        return torch.stack(drafts, 1)


def _best(hidden_BD: Tensor, head: Weight, coupling: Coupling | None, step: int) -> Tensor:
    if coupling is None:
        return argmax_of_product(hidden_BD, head)
    if coupling.draws is not None:
        return argmax_of_product(hidden_BD, head, coupling.draws._replace(first=step))
    return argmax_token(coupling.at(linear(hidden_BD, head), step))


def load_chain(
    path: str | Path,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    random_weights: bool = False,
    int8: bool = False,
) -> DraftChain:
    """Read the drafter's half of a checkpoint; with `int8` the layer's products are by weights of eight bits.

    Raises:
        ModelError: the checkpoint is damaged, incomplete, or of an unsupported shape.
    """
    where, folder = torch.device(device), resolve_folder(path)
    if where.type == "cuda":
        keep_order()
    read = read_any_spec(folder)
    if not isinstance(read, ChainSpec):
        raise ModelError(f"{folder}: {read.kind} fills blocks, where a drafter of chains is expected")
    spec, checkpoint = open_tensors(folder, read, where, random_weights)
    parts = chain_kind(spec).read_parts(spec, checkpoint, dtype, where)
    if int8:
        parts = replace(parts, layer=parts.layer.in_int8())
    shapes = table_shapes(spec)
    own = {name: checkpoint.read(name, shapes[name], dtype).to(where) for name in spec.own_tables}
    tables, vocabulary = Tables(own, int8, spec.tied), read_vocabulary(spec, checkpoint, where)
    return DraftChain(spec, parts, tables, vocabulary, checkpoint.revision)
