"""What a hybrid's sequences leave behind: planned, found by slot, and the same bits however rows were cut."""

import random
from pathlib import Path

import pytest
import torch
from torch import Tensor

from services.common.model import Target, load_target
from services.common.model.spec import Delta
from services.common.model.states.recurrent import RecurrentStates
from services.common.model.states.states import Part, Rows, SequenceStates
from tests.support.tiny_checkpoints import write_tiny
from tests.unit.common.model.pairs import ids_like, poisoned_states, span_at, tables

BLOCKS, BLOCK_SIZE, SLOTS, WIDTH = 9, 4, 3, 8
TEXT = 110


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its weights fit float16: the CPU's products of them have the same bits whatever the number of rows is."""
    return write_tiny(Path(tmp_path_factory.mktemp("pair")), 2, family="qwen3_5_text", dtype=torch.bfloat16).target


@pytest.fixture(scope="module")
def target(checkpoint: Path) -> Target:
    return load_target(checkpoint)


def test_the_planned_bytes_are_those_allocated(target: Target) -> None:
    sizes = SequenceStates.sizes(target.spec, target.dtype.itemsize, WIDTH)
    held = sum(tensor.nbytes for tensor in target.new_states(BLOCKS, BLOCK_SIZE, SLOTS, WIDTH).tensors)
    assert sizes.per_slot > sizes.per_snapshot > 0
    assert held == sizes.fixed + (SLOTS - 1) * sizes.per_slot + BLOCKS * BLOCK_SIZE * sizes.per_token


def test_only_layers_of_attention_have_keys_and_values(target: Target) -> None:
    states = target.new_states(BLOCKS, BLOCK_SIZE, SLOTS, WIDTH)
    for layer, held in zip(target.spec.layers, states.layers, strict=True):
        assert len(held) == (2 if isinstance(layer.mixer, Delta) else 1)
    assert len({part.data_ptr() for held in states.layers for part in held}) == 7
    assert states.tensors[0].shape[0] == 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_planned_bytes_of_snapshots_are_those_allocated(checkpoint: Path, dtype: torch.dtype) -> None:
    target, places = load_target(checkpoint, dtype), 5
    planned = SequenceStates.sizes(target.spec, dtype.itemsize).per_snapshot
    assert target.spec.delta is not None
    states = RecurrentStates(target.spec, target.spec.delta, dtype, target.device, SLOTS, WIDTH, places)
    assert sum(tensor.nbytes for tensor in states.snapshots.tensors) == places * planned
    assert states.snapshots.tensors[0].data_ptr() not in {tensor.data_ptr() for tensor in states.tensors}


class Text:
    """One sequence in a slot: spans of it, and the streams after its recurrent layers."""

    def __init__(self, target: Target, slot: int, states: SequenceStates | None = None) -> None:
        self.target, self.slot, self.length = target, slot, 0
        self.ids_T = ids_like(TEXT)
        self.table_BN = tables([28], 28)
        self.states = states or poisoned_states(target)
        self.streams: list[Tensor] = []

    def run(self, width: int, kept: int, prompt: bool = False) -> None:
        """A chunk of a prompt with pad rows, or a round of which `kept` rows are accepted."""
        ids_W = self.ids_T[self.length : self.length + width].clone()
        ids_W[kept:] = 5
        span = span_at(self.table_BN, [self.length], width, [kept] if prompt else None).parts[0].span
        rows = Rows(Part(span, torch.tensor([self.slot]), torch.tensor([kept]) if prompt else None))
        _, streams_TF = self.target.forward(ids_W, rows, self.states, taps=(0, 1, 2))
        self.streams.append(streams_TF[:kept])
        self.length += kept

    def left(self) -> list[Tensor]:
        """States at the last boundary that was stored, and all K/V."""
        kv_2NSHD = self.states.layers[-1][0]
        slots_T = span_at(self.table_BN, [0], self.length).slots_T
        states = [held[0][self.slot] for held in self.states.layers[:-1]]
        return [*states, kv_2NSHD.flatten(1, 2)[:, slots_T]]


def one_by_one(target: Target, tokens: int) -> Text:
    text = Text(target, slot=1)
    for _ in range(tokens):
        text.run(1, 1)
    return text


def test_states_and_keys_and_values_after_a_prompt_are_those_of_plain_decoding(target: Target) -> None:
    """Equal to the bit, in chunks of any lengths, and in rounds of any width with rejected rows."""
    expected, pick = one_by_one(target, 66), random.Random(4)
    prompt, rounds = Text(target, slot=2), Text(target, slot=0)
    while prompt.length < 64:
        prompt.run(40, min(pick.randrange(1, 30), 64 - prompt.length), prompt=True)
    while rounds.length < 66:
        width = min(pick.choice((1, 4, 8)), 66 - rounds.length)
        rounds.run(width, pick.randrange(1, width + 1))
    prompt.run(2, 2, prompt=True)
    for other in (prompt, rounds):
        assert torch.equal(torch.cat(other.streams), torch.cat(expected.streams))
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(other.left(), expected.left(), strict=True))


def test_a_slot_that_changes_hands_begins_anew(target: Target) -> None:
    """Its state and its ring are not read again."""
    expected, again = one_by_one(target, 20), Text(target, slot=1)
    again.run(40, 40, prompt=True)
    again.states.reset(1)
    again.length, again.streams = 0, []
    again.run(24, 20, prompt=True)
    assert torch.equal(torch.cat(again.streams), torch.cat(expected.streams))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_sequence_goes_on_from_a_snapshot_to_the_bit(checkpoint: Path, dtype: torch.dtype, full: bool) -> None:
    """In any slot, in any chunks and rounds, as a sequence that was never interrupted.

    In float32 they are the bits of plain decoding too; in float64 products depend on the number of rows.
    """
    target, pick = load_target(checkpoint, dtype), random.Random(5)
    plain = torch.cat(one_by_one(target, 76).streams)
    for boundary in range(16, 65, 16) if full else (16, 48):
        cold, first = Text(target, slot=1), Text(target, slot=1)
        for text in (cold, first):
            text.run(64, boundary, prompt=True)
        first.run(16, pick.randrange(1, 15))
        first.states.save(1, place=2, folded=boundary)
        again = Text(target, slot=pick.choice((0, 1, 2)), states=first.states)
        _poison_slot(again.states, again.slot)
        again.states.resume(again.slot, place=2, folded=boundary)
        again.length = boundary
        _go_on((cold, again), pick)
        warm = torch.cat(again.streams)
        assert torch.equal(warm, torch.cat(cold.streams)[boundary:])
        assert dtype == torch.float64 or torch.equal(warm, plain[boundary:])


def _go_on(texts: tuple[Text, ...], pick: random.Random) -> None:
    """Most often another chunk of a prompt, then rounds."""
    width, kept, prompt = 40, pick.randrange(1, 12), pick.random() < 0.8
    while texts[0].length < 76:
        for text in texts:
            text.run(width, min(kept, 76 - text.length), prompt)
        width, prompt = pick.choice((1, 4, 8, 16)), False
        kept = pick.randrange(1, width + 1)


def _poison_slot(states: SequenceStates, slot: int) -> None:
    """What a slot's last request left is not read."""
    for held in states.layers[:-1]:
        for tensor in held:
            tensor[slot].fill_(float("nan"))
