"""Prefill of a pack of prompt chunks of static shape, and the first tokens of all prompts that end with it.

Plain rows of slots that decode may lie behind a pack's segments: products then read the weights once for both. Their
next tokens are chosen together with first ones, by the same rule.

Rows past a segment's tokens are padding: they write to the pad block and no real row attends to them. A pack writes the
draft context of its rows too, so every block is complete for any drafter that attaches later.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from services.common.device.staging import write
from services.common.kernels.accept import RoundResult, accept
from services.common.kernels.prepare_span import prepare_span
from services.common.kernels.span_attention import plan_span
from services.common.model.states.states import Part, Rows
from services.target.device.context import Pool
from services.target.device.packing import Pack
from services.target.device.shapes import PackShape
from services.target.device.verify import Mode

_FIELDS = 5


class PackInputs:
    """Static inputs of packs of all sizes, and the hidden states of the last tokens of prompts, `[F + 1, D]`.

    By segment of a pack: its slot, the position of its first row, its real rows, its last real row in the pack, and
    where this one's hidden state goes; those of segments that end no prompt go behind all others. `beside_R` are the
    places of rows beside a pack, behind those of prompts. `first_F` are the slots whose tokens are chosen. One transfer
    fills all inputs of a pack.
    """

    def __init__(self, pool: Pool) -> None:
        settings, device = pool.settings, pool.device
        self._pad_slot, firsts = settings.pad_slot, settings.buckets[-1]
        self._segments = max(shape.segments for shape in settings.packs)
        most, self._beside = max(shape.rows for shape in settings.packs), settings.mixed.beside if settings.mixed else 0
        fields = _FIELDS * self._segments
        self._packed_N = torch.zeros(fields + self._beside + most, dtype=torch.int64, device=device)
        fields_N, self.beside_R, self.ids_T = self._packed_N.split([fields, self._beside, most])
        self.slot_B, self.start_B, self.valid_B, self.last_B, self.place_B = fields_N.view(_FIELDS, -1).unbind()
        self.first_F = torch.full((firsts,), settings.pad_slot, dtype=torch.int32, device=device)
        self.hidden_FD = torch.zeros(firsts + 1, pool.model.spec.hidden_size, dtype=pool.model.dtype, device=device)
        self.set(Pack(settings.packs[0], []))

    @property
    def tensors(self) -> list[Tensor]:
        """The inputs, for the signatures of steps."""
        return [self._packed_N, self.first_F, self.hidden_FD]

    def set(self, pack: Pack, beside: int = 0) -> None:
        """Fills the inputs for a pack and so many rows beside it."""
        width, nowhere = pack.shape.width, len(self.first_F)
        fields = [(self._pad_slot, 0, 0, 0, nowhere)] * self._segments
        ids: list[int] = []
        for index, (slot, start, token_ids, place) in enumerate(pack.segments):
            valid = len(token_ids)
            last = index * width + valid - 1
            fields[index] = slot, start, valid, last, nowhere if place < 0 else place
            ids += token_ids
            ids += [0] * (width - valid)
        ids += [0] * (pack.shape.tokens - len(ids))
        values = [value for field in zip(*fields, strict=True) for value in field]
        first = sum(place >= 0 for *_, place in pack.segments)
        values += [first + row if row < beside else nowhere for row in range(self._beside)]
        write(self._packed_N[: len(values) + len(ids)], values + ids)

    def set_first(self, slots: Sequence[int]) -> None:
        """Fills the slots whose tokens are chosen, in the order of their places."""
        write(self.first_F, [*slots, *[self._pad_slot] * (len(self.first_F) - len(slots))])


class PrefillStep:
    """One shape of pack; `run` is what a graph captures."""

    def __init__(self, pool: Pool, inputs: PackInputs, shape: PackShape, rows_B: Tensor) -> None:
        """`rows_B` are the slots of the round's rows, of which the shape says how many lie beside it."""
        self._pool, self._inputs, self._shape, self._beside_R = pool, inputs, shape, rows_B[: shape.beside]

    @property
    def tensors(self) -> list[Tensor]:
        """The step's inputs, for its signature."""
        return [*self._pool.tensors, *self._inputs.tensors]

    def run(self) -> None:
        """Forward of the pack; leaves the hidden states of last tokens in the shared inputs."""
        inputs, count = self._inputs, self._shape.segments
        rows = Rows(self._part(), ends=inputs.last_B[:count])
        ids_T, places_E = inputs.ids_T[: self._shape.tokens], inputs.place_B[:count]
        if self._shape.beside:
            ids_T, rows, places_E = self._with_beside(ids_T, rows)
        inputs.hidden_FD.index_copy_(0, places_E, self._forward(ids_T, rows))

    def run_all(self) -> Tensor:
        """The same, never captured, without rows beside it; returns the hidden states of all rows [T, D]."""
        inputs, count = self._inputs, self._shape.segments
        hidden_TD = self._forward(inputs.ids_T[: self._shape.tokens], Rows(self._part()))
        inputs.hidden_FD.index_copy_(0, inputs.place_B[:count], hidden_TD.index_select(0, inputs.last_B[:count]))
        return hidden_TD

    def _part(self) -> Part:
        pool, inputs, count, width = self._pool, self._inputs, self._shape.segments, self._shape.width
        slot_B, start_B, valid_B = inputs.slot_B[:count], inputs.start_B[:count], inputs.valid_B[:count]
        span = plan_span(pool.state.block_table_SN[slot_B], start_B, width, pool.settings.block_size, valid_B=valid_B)
        return Part(span, slot_B, valid_B)

    def _forward(self, ids_T: Tensor, rows: Rows) -> Tensor:
        """Returns the hidden states that are read in the end, once all that rows leave behind is written."""
        pool = self._pool
        hidden_ED, features_TF = pool.model.forward(ids_T, rows, pool.states, pool.context.taps)
        states_TD = pool.write_context(ids_T, features_TF, rows)
        if pool.seeds is not None and states_TD is not None:
            pool.seeds.fill(states_TD, rows)
        return hidden_ED

    def _with_beside(self, ids_T: Tensor, rows: Rows) -> tuple[Tensor, Rows, Tensor]:
        """Ids, rows and places of a pack and of what lies behind it: the last committed token of each slot."""
        pool, inputs, count, slots_R = self._pool, self._inputs, self._shape.segments, self._beside_R
        slots, none_R0 = pool.state.slots, ids_T.new_empty((len(slots_R), 0))
        ids_R1, span = prepare_span(
            slots_R, slots.anchor_S, slots.length_S, pool.state.block_table_SN, none_R0, pool.settings.block_size
        )
        behind_R = torch.arange(len(ids_T), len(ids_T) + len(slots_R), device=ids_T.device)
        ends_E = torch.cat((inputs.last_B[:count], behind_R))
        both = Rows(*rows.parts, Part(span, slots_R), ends=ends_E)
        return torch.cat((ids_T, ids_R1.flatten())), both, torch.cat((inputs.place_B[:count], inputs.beside_R))


class FirstTokenStep:
    """Chooses first tokens with the rule of every other token: an accept without drafts for a bucket of requests."""

    def __init__(self, pool: Pool, inputs: PackInputs, bucket: int, mode: Mode, ring_TV: Tensor | None) -> None:
        device = pool.device
        self._pool, self._inputs, self._mode, self._ring_TV = pool, inputs, mode, ring_TV
        self._rows_B, self._hidden_BD = inputs.first_F[:bucket], inputs.hidden_FD[:bucket]
        self._drafts_BK = torch.full((bucket, 0), -1, dtype=torch.int64, device=device)
        self.noise_index_T = torch.zeros(bucket, dtype=torch.int64, device=device)
        self.result = RoundResult.allocate(bucket, 1, device)
        self.logits_BWV = torch.empty(0)

    @property
    def tensors(self) -> list[Tensor]:
        """The step's inputs, for its signature."""
        return [*self._pool.tensors, *self._inputs.tensors, self.noise_index_T, self.result.tokens_BW]

    def run(self) -> None:
        """Logits, accept, commit; leaves the outcome in `result` and the raw logits in `logits_BWV`."""
        pool = self._pool
        self.logits_BWV = pool.logits(self._hidden_BD)[:, None]
        slots = pool.state.slots
        accept(self.logits_BWV, self._drafts_BK, self._rows_B, slots, self.result, self._noise(), self._mode)

    def _noise(self) -> Tensor | None:
        if self._mode == "greedy" or self._ring_TV is None:
            return None
        return self._ring_TV.index_select(0, self.noise_index_T)[:, None]
