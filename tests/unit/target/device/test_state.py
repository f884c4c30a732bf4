"""Slots change hands on the device in as many operators for a burst as for one request."""

from collections.abc import Callable
from dataclasses import fields
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


def tensors(state: DeviceState) -> list[torch.Tensor]:
    """All that it holds on the device."""
    slots = [value for value in vars_of(state.slots) if isinstance(value, torch.Tensor)]
    return [*slots, state.epoch_S, state.block_table_SN]


def vars_of(slots: object) -> list[object]:
    return [getattr(slots, field.name) for field in fields(slots)]  # type: ignore[arg-type]


def operators(slots: range) -> int:
    state = device_state()
    state.apply(plan(slots))
    counted = Operators()
    with counted:
        state.apply(plan(slots, released=True))
    return counted.count


def test_a_burst_takes_the_operators_of_one_request() -> None:
    assert operators(range(SLOTS)) == operators(range(1))


def test_prompts_need_few_operators_before_they_start() -> None:
    """On a GPU slots' own tensors took 0.65 ms for one request before its prompt was launched, 1 ms for eight."""
    at_once, in_parts, counted, left = device_state(), device_state(), Operators(), Operators()
    for state in (at_once, in_parts):
        state.apply(plan(range(4)))
    at_once.apply(plan(range(2, 6), released=True))
    with counted:
        in_parts.apply(plan(range(2, 6), released=True), later=True)
    assert torch.equal(in_parts.block_table_SN, at_once.block_table_SN)
    with left:
        in_parts.finish()
    assert counted.count < left.count / 4
    for one, other in zip(tensors(in_parts), tensors(at_once), strict=True):
        assert torch.equal(one, other)


def test_what_was_left_comes_before_the_next_plan() -> None:
    """As where the round failed that was to finish it."""
    at_once, in_parts = device_state(), device_state()
    for state, later in ((at_once, False), (in_parts, True)):
        state.apply(plan(range(4)), later)
        state.apply(plan(range(2, 6), released=True))
    for one, other in zip(tensors(in_parts), tensors(at_once), strict=True):
        assert torch.equal(one, other)


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
