"""Rounds of chains of any lengths: ids and places of pieces, accept and forced acceptance, against the references."""

import random

import pytest
import torch

from services.common.kernels.accept import Entrant, RoundResult, SlotState, accept
from services.common.kernels.accept import kernel as accept_kernel
from services.common.kernels.force_acceptance import force_acceptance
from services.common.kernels.force_acceptance import kernel as lift_kernel
from services.common.kernels.prepare_span import kernel as seat_kernel
from services.common.kernels.prepare_span import prepare_span
from services.common.kernels.row_table import RowTable
from services.common.kernels.span_attention.span import OPEN
from tests.kernels.gpu.devices import DEVICE
from tests.kernels.gpu.test_commit import CONTEXT, SEED, SLOTS, VOCAB, assert_same, on_device, params_of

LINES, WIDTH = 5, 6
SLOTS_OF, PAD = (3, 0, 1), SLOTS


def tables(takes: tuple[int, ...], grain: int, spare: int = 2) -> tuple[RowTable, RowTable]:
    """One for the reference and its like on the device; some pieces are padding, and some lines have no sequence."""
    made = [RowTable.allocate(sum(takes) // grain + spare, grain, LINES, PAD, where) for where in ("cpu", DEVICE)]
    for table in made:
        table.set(SLOTS_OF, takes)
    return made[0], made[1]


@pytest.mark.parametrize(("takes", "grain"), [((1, 6, 3), 1), ((4, 2, 6), 2), ((3, 6, 3), 3)])
def test_pieces_are_seated_as_the_reference_seats_them(takes: tuple[int, ...], grain: int) -> None:
    told, table = tables(takes, grain)
    rows = torch.tensor([*SLOTS_OF, PAD, PAD], dtype=torch.int32)
    anchors, lengths = torch.tensor([11, 12, 13, 14, 0]), torch.tensor([7, 30, 2, 16, 0])
    blocks = torch.arange(1, 41, dtype=torch.int32).view(5, 8)
    blocks[PAD] = 0
    drafts = torch.randint(-1, VOCAB, (LINES, WIDTH - 1), generator=torch.Generator().manual_seed(SEED))
    ids, span = prepare_span.reference(rows, anchors, lengths, blocks, drafts, 8, OPEN, told)
    slots_there, anchors_there, lengths_there = rows.to(DEVICE), anchors.to(DEVICE), lengths.to(DEVICE)
    blocks_there, drafts_there = blocks.to(DEVICE), drafts.to(DEVICE)
    got_ids, got = seat_kernel.prepare_span(
        slots_there, anchors_there, lengths_there, blocks_there, drafts_there, 8, OPEN, table
    )
    assert got_ids.tolist() == ids.tolist()
    assert got.positions_BW.tolist() == span.positions_BW.tolist()
    assert got.slots_T.tolist() == span.slots_T.tolist()
    assert (got.lengths_B.tolist(), got.reach_B.tolist()) == (span.lengths_B.tolist(), span.reach_B.tolist())
    assert got.ranks_B2 is not None
    order = sorted(range(len(ids)), key=lambda piece: -int(span.lengths_B[piece]))
    assert got.ranks_B2.tolist() == [[piece, int(span.lengths_B[piece])] for piece in order]


@pytest.mark.parametrize(("mode", "together"), [("greedy", 512), ("full", 512), ("full", 5)])
@pytest.mark.parametrize("grain", [1, 2])
def test_rounds_equal_the_reference(mode: str, together: int, grain: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether all rows are scored together or some at a time."""
    monkeypatch.setattr(accept_kernel, "SCORED_ROWS", together)
    rng, generator = random.Random(SEED), torch.Generator().manual_seed(SEED)
    for _ in range(2 if DEVICE == "cpu" else 100):
        state = SlotState.allocate(SLOTS, VOCAB, CONTEXT, stop_ids=4, width=WIDTH)
        for slot in SLOTS_OF:
            prompt = [rng.randrange(VOCAB) for _ in range(5)]
            state.admit(Entrant(slot, params_of(rng, mode == "greedy"), prompt, [9, 9]))
        takes = tuple(grain * rng.randint(1, WIDTH // grain) for _ in SLOTS_OF)
        told, table = tables(takes, grain)
        rows = torch.tensor([*SLOTS_OF, PAD, PAD], dtype=torch.int32)
        logits = torch.randn((len(told.seats_P), grain, VOCAB), generator=generator) * 2
        drafts = logits.flatten(0, 1)[told.rows_of(WIDTH)].argmax(-1)[:, : WIDTH - 1].clone()
        drafts[1, 1:] = -1
        state.mask_SWN.random_(-(1 << 31), 1 << 31, generator=generator)
        state.walked_SK[rows[:3].long(), : WIDTH - 1] = drafts[:3]
        state.walked_SK[1, 1:] = 7
        twin = on_device(state)
        result, got = (RoundResult.allocate(LINES, WIDTH, where) for where in ("cpu", DEVICE))
        accept.reference(logits, drafts, rows, state, result, None, mode, table=told)  # type: ignore[arg-type]
        accept_kernel.accept(
            logits.to(DEVICE), drafts.to(DEVICE), rows.to(DEVICE), twin, got, None, mode, table=table  # type: ignore[arg-type]
        )  # fmt: skip
        assert_same(got, result)
        assert_same(twin, state)


def test_lifted_drafts_are_those_of_the_reference() -> None:
    told, table = tables((4, 2, 6), 2)
    state = SlotState.allocate(SLOTS, VOCAB, CONTEXT)
    state.seed_S.copy_(torch.arange(SLOTS + 1) + 7)
    rates = torch.rand((3, WIDTH - 1), generator=torch.Generator().manual_seed(SEED)).sort(descending=True).values
    rows = torch.tensor([*SLOTS_OF, PAD, PAD], dtype=torch.int32)
    for position in range(5):
        state.length_S.fill_(position)
        logits = torch.randn((len(told.seats_P), 2, VOCAB), generator=torch.Generator().manual_seed(position))
        drafts = torch.randint(-1, VOCAB, (LINES, WIDTH - 1), generator=torch.Generator().manual_seed(position))
        got, twin = logits.clone().to(DEVICE), on_device(state)
        force_acceptance.reference(logits, drafts, rates, rows, state, told)
        drafts_there, rates_there, rows_there = drafts.to(DEVICE), rates.to(DEVICE), rows.to(DEVICE)
        lift_kernel.force_acceptance(got, drafts_there, rates_there, rows_there, twin, table)
        assert torch.equal(got.cpu(), logits)


def test_a_table_takes_whole_pieces_that_fit() -> None:
    table = RowTable.allocate(4, 2, LINES, PAD)
    for takes in ((3,), (0,), (4, 6), (-2,)):
        with pytest.raises(ValueError, match="whole pieces of 2, 4 at most"):
            table.set((0, 1)[: len(takes)], takes)
    table.set((2, 1), (2, 4))
    assert table.seats_P.tolist() == [2, 1, 1, PAD]
    assert table.rows_of(4)[:2].tolist() == [[0, 1, 1, 1], [2, 3, 4, 5]]
