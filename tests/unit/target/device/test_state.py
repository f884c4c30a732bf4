"""Slots change hands on the device in as many operators for a burst as for one request."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from services.target.core.plan import Admission, Growth, Plan
from services.target.device.shapes import RunnerSettings
from services.target.device.state import DeviceState
from tests.unit.target.core.specs import PROCESSED, prompt, request

SLOTS, VOCAB, LIMIT = 8, 320, 64


class Operators(TorchDispatchMode):
    """Counts what runs."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(
        self, called: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.count += 1
        return called(*args, **(kwargs or {}))


def device_state() -> DeviceState:
    settings = RunnerSettings(slots=SLOTS, blocks=32, context_limit=LIMIT)
    return DeviceState(settings, VOCAB, torch.zeros(SLOTS + 1, LIMIT, dtype=torch.int32), torch.device("cpu"))


def plan(slots: range, *, released: bool = False) -> Plan:
    """Requests of different prompts, with output, stop ids and biases, and what they had before leaves."""
    admissions = []
    for slot in slots:
        ids = prompt(slot, 10 + 3 * slot)
        spec = request(f"r{slot}", ids, sampling=PROCESSED, prompt_length=len(ids) - 2)
        admissions.append(Admission(slot, 7 + slot, spec, (slot + 1, slot + 9), 0))
    grown = tuple(Growth(slot, (slot + 17,)) for slot in slots)
    return Plan(1, 1, (), 0, (), tuple(admissions), grown, tuple(slots) if released else ())


def operators(slots: range) -> int:
    state = device_state()
    state.apply(plan(slots))
    counted = Operators()
    with counted:
        state.apply(plan(slots, released=True))
    return counted.count


def test_a_burst_takes_the_operators_of_one_request() -> None:
    assert operators(range(SLOTS)) == operators(range(1))


def test_every_slot_holds_its_own_request() -> None:
    together, one_by_one = device_state(), device_state()
    together.apply(plan(range(SLOTS)))
    for slot in range(SLOTS):
        one_by_one.apply(plan(range(slot, slot + 1)))
    for name, column in vars(together.slots).items():
        if isinstance(column, torch.Tensor):
            assert torch.equal(column, getattr(one_by_one.slots, name)), name
    assert torch.equal(together.epoch_S, torch.tensor([*range(7, 15), 0]))
    for slot in range(SLOTS):
        ids = prompt(slot, 10 + 3 * slot)
        assert together.block_table_SN[slot].tolist() == [slot + 1, slot + 9, slot + 17, 0]
        slots = together.slots
        assert slots.history_SC[slot, : len(ids)].tolist() == list(ids)
        assert (int(slots.length_S[slot]), int(slots.anchor_S[slot])) == (len(ids) - 1, ids[-1])
        assert slots.prompt_seen_SV[slot].nonzero().flatten().tolist() == sorted(set(ids[:-2]))
        assert torch.equal(slots.counts_SV[slot], torch.tensor(ids[-2:]).bincount(minlength=VOCAB))
        assert slots.bias_SV[slot].nonzero().flatten().tolist() == [5, 9]
    assert not together.slots.active_S[SLOTS] and together.slots.active_S[:SLOTS].all()


def test_a_token_outside_the_vocabulary_marks_no_other_slot() -> None:
    state = device_state()
    wrong = request("w", (3, VOCAB), 4)
    with pytest.raises(IndexError, match="320"):
        state.apply(Plan(1, 1, (), 0, (), (Admission(0, 1, wrong, (1,), 0),), (), ()))
    assert not state.slots.prompt_seen_SV.any()
