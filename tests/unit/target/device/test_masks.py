"""What a GPU's target does for masks, on a machine without one: drafts are mended by a copy, masks made by threads."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from services.target.device import masks as module
from services.target.device.drafted import Path
from services.target.device.masks import Masks
from services.target.device.runner import Runner
from services.target.device.state import Rows
from tests.lossless.gate import EOS
from tests.lossless.pairs import made_up_pair
from tests.lossless.proposers import Breaking
from tests.lossless.rig import Rig, RigSettings
from tests.lossless.test_grammars import FEW, ruled

STREAM = SimpleNamespace(synchronize=lambda: None, cuda_stream=0)


def copier_at_once(source: Tensor, target: Tensor) -> Callable[[int, int, int | None], object]:
    """A copier of a stream that is never behind."""
    return lambda first, end, stream: target[first:end].copy_(source[first:end])


def setter_at_once(words_S: Tensor) -> Callable[[Sequence[int], int, int], None]:
    def set_words(places: Sequence[int], number: int, stream: int) -> None:
        words_S[list(places)] = number

    return set_words


def beside(masks: Masks, threads: ThreadPoolExecutor) -> Masks:
    """The same masks where copies bring all that steps read; memory of the host is apart from the device's."""
    twin = copy.copy(masks)
    pool, slots = masks._pool, masks._slots
    twin._stream, twin._threads = cast(Any, STREAM), threads
    twin._slots = cast(Any, SimpleNamespace(mask_SWN=slots.mask_SWN.clone(), walked_SK=slots.walked_SK.clone()))
    gate = masks._inputs.mask_gate
    apart = SimpleNamespace(made_S=gate.made_S.clone(), mended_S=gate.made_S.clone(), told_SW=gate.told_SW)
    twin._inputs = cast(Any, SimpleNamespace(mask_gate=apart))
    twin._pool = replace(pool, mailbox_SK=pool.mailbox_SK.clone())
    for name in ("_mask_SWN", "_walked_SK", "_mailbox_SK"):
        setattr(twin, name, torch.full_like(getattr(twin, name), 7))
    twin._view()
    return twin


@pytest.mark.parametrize(("width", "peeks"), [(4, False), (8, False), (8, True)])
def test_copies_bring_what_a_cpu_writes_in_place(width: int, peeks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pair, specs = made_up_pair(), [spec for spec in ruled(0.0, 2 * FEW) if spec.grammar is not None]
    mend, make, settle, mended, several = Masks.mend, Masks.make, Masks.settle, list[int](), 0
    twins = dict[int, Masks]()

    def both_mend(masks: Masks, held: Rows, drafts: Sequence[Path], number: int) -> list[Path]:
        twin = twins[number] = beside(masks, threads)
        twice = mend(twin, held, drafts, number)
        found = mend(masks, held, drafts, number)
        slots = [slot for slot, _ in held]
        assert twice == found
        for slot, path in zip(slots, found, strict=True):
            assert twin._pool.mailbox_SK[slot, : len(path.tokens)].tolist() == [*path.tokens]
        assert twin._inputs.mask_gate.mended_S[slots].eq(number).all(), "the step that waits goes on"
        mended.append(sum(path is not offered for path, offered in zip(found, drafts, strict=True)))
        return found

    def both_make(masks: Masks, held: Rows, drafts: Sequence[Path], width: int, number: int) -> None:
        if peeks:  # all rows here wait for their choices
            assert not held
            return
        twin = twins.pop(number, None) or beside(masks, threads)
        make(twin, held, drafts, width, number)
        make(masks, held, drafts, width, number)
        same(twin, masks, held, drafts, number)

    def both_settle(
        masks: Masks, held: Rows, drafts: Sequence[Path], width: int, number: int, ran: torch.cuda.Event | None
    ) -> None:
        twin = twins.pop(number, None) or beside(masks, threads)
        for one in (twin, masks):
            settle(one, held, drafts, width, number, ran)
        same(twin, masks, held, drafts, number)

    def same(twin: Masks, masks: Masks, held: Rows, drafts: Sequence[Path], number: int) -> None:
        nonlocal several
        several += len(held) > 1
        for (slot, _), path in zip(held, drafts, strict=True):
            rows = [0, *path.rows]
            known = masks._walked_SK[slot].ge(0).sum() + 1
            assert twin._slots.walked_SK[slot].equal(masks._slots.walked_SK[slot])
            of_twin, of_ours = (one._slots.mask_SWN[slot, rows[:known]] for one in (twin, masks))
            assert of_twin.equal(of_ours)
            assert int(twin._inputs.mask_gate.made_S[slot]) == number

    monkeypatch.setattr(module, "row_copier", copier_at_once)
    monkeypatch.setattr(module, "places_setter", setter_at_once)
    monkeypatch.setattr(Masks, "mend", both_mend)
    monkeypatch.setattr(Masks, "make", both_make)
    monkeypatch.setattr(Masks, "settle", both_settle)
    if not peeks:
        monkeypatch.setattr(Masks, "parted", lambda masks, rows, peeks, forward_us: (rows, []))
    settings = RigSettings(dtype=torch.float64, eos_ids=EOS, width=width)
    with ThreadPoolExecutor(3) as threads, Rig(pair.target, pair.drafter, settings, Breaking) as rig:
        rig.run(specs)
    assert sum(mended) > 20
    assert several > 10


@pytest.mark.parametrize(
    ("rows", "ruled_rows", "on_gpu", "mends"),
    [(1, 1, True, True), (1, 0, True, False), (2, 2, True, False), (2, 1, True, False), (2, 1, False, True)],
)
def test_no_row_waits_for_drafts_of_others(rows: int, ruled_rows: int, on_gpu: bool, mends: bool) -> None:
    """On a GPU the step waits in front of its forward; on a CPU it runs behind the host's work anyway."""
    seated = [(slot, SimpleNamespace(masked=slot < ruled_rows)) for slot in range(rows)]
    masks = cast(Any, SimpleNamespace(beside=on_gpu))
    assert Masks.mends(masks, cast(Any, seated)) is mends


@pytest.mark.parametrize(
    ("count", "forward_us", "on_gpu", "peeks", "later"),
    [
        (2, 500.0, True, True, 2),
        (2, 9e3, True, True, 0),
        (1, 0.0, True, True, 1),
        (2, 500.0, True, False, 0),
        (2, 9e3, False, True, 2),
    ],
)
def test_masks_that_a_forward_hides_are_made_at_once(
    count: int, forward_us: float, on_gpu: bool, peeks: bool, later: int
) -> None:
    seat = SimpleNamespace(unfiltered=True, walker=SimpleNamespace(alone=True))
    rows = [(slot, seat) for slot in range(count)]
    masks = cast(Any, SimpleNamespace(beside=on_gpu))
    now, waiting = Masks.parted(masks, cast(Any, rows), peeks, forward_us)
    assert (len(now), len(waiting)) == (count - later, later)


@pytest.mark.parametrize(("unfiltered", "alone"), [(False, True), (True, False)])
def test_rows_whose_choice_tells_nothing_do_not_wait_for_it(unfiltered: bool, alone: bool) -> None:
    """Top-k cuts what a mask leaves; within a thought, or beside banned words, a matcher does not tell the mask."""
    told = SimpleNamespace(unfiltered=True, walker=SimpleNamespace(alone=True))
    other = SimpleNamespace(unfiltered=unfiltered, walker=SimpleNamespace(alone=alone))
    rows = [(0, told), (1, other)]
    now, waiting = Masks.parted(cast(Any, SimpleNamespace(beside=False)), cast(Any, rows), True, 0.0)
    assert [slot for slot, _ in now] == [1]
    assert [slot for slot, _ in waiting] == [0]


def test_no_word_says_that_masks_are_there_before_they_are() -> None:
    """The stream is behind the host by any number of operations, and slots that are told one after the other mix."""
    host_SN, device_SN, made_S = torch.zeros(4, 2), torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64)
    behind = list[Callable[[], object]]()

    def copy_rows(first: int, end: int, stream: int | None) -> None:
        behind.append(lambda: device_SN[first:end].copy_(host_SN[first:end]))

    def set_words(places: Sequence[int], number: int, stream: int) -> None:
        behind.extend(partial(made_S.__setitem__, place, number) for place in places)

    masks = Masks.__new__(Masks)
    masks._stream, masks._copies, masks._say_made = cast(Any, STREAM), [copy_rows], set_words
    for ran in range(4):
        for words in (device_SN, host_SN, made_S):
            words.zero_()
        behind.clear()
        host_SN[[0, 2]] = 1.0
        masks._tell([0, 2], 5)
        for operation in behind[:ran]:
            operation()
        host_SN[[1, 3]] = 1.0
        masks._tell([1, 3], 5)
        for operation in behind[ran:]:
            operation()
            assert device_SN[made_S == 5].eq(1.0).all()
        assert made_S.eq(5).all()


@pytest.mark.parametrize(
    ("beside", "mends", "now"), [(True, False, 0), (True, True, 0), (True, False, 1), (False, False, 0)]
)
def test_drafts_that_only_choices_need_are_read_when_the_next_round_is_launched(
    beside: bool, mends: bool, now: int
) -> None:
    """The host has other work until they are there. Drafts to be mended, and masks made at once, cannot wait."""
    order, rules = list[str](), list[Callable[[], Callable[[], None] | None]]()
    rows = [(slot, SimpleNamespace(masked=True)) for slot in range(2)]

    def told() -> list[Path]:
        order.append("drafts")
        return [Path([1], [5]), Path([1], [6])]

    def noted(name: str) -> Callable[..., Any]:
        def note(held: Rows, drafts: Sequence[Path], *others: object) -> Sequence[Path]:
            order.append(f"{name} {[path.tokens for path in drafts]}")
            return drafts

        return note

    masks = SimpleNamespace(
        beside=beside, mends=lambda seated: mends, mend=noted("mend"), make=noted("make"), settle=noted("settle"),
        parted=lambda held, peeks, forward_us: (held[:now], held[now:]), run_beside=lambda run: run(),
    )  # fmt: skip
    gate = SimpleNamespace(expect=lambda number: None, meanwhile=None)
    runner = SimpleNamespace(
        _masks=masks, _drafts=SimpleNamespace(watch=noted("watch"), generation=1), _costs={},
        _drafted=SimpleNamespace(offer=lambda *asked: told), _next=SimpleNamespace(later=rules.append),
        steps=SimpleNamespace(round=SimpleNamespace(mask_gate=gate)),
    )  # fmt: skip
    plan = SimpleNamespace(number=7, nodes=False, bucket=2, kind=4)
    Runner._rule(cast(Any, runner), cast(Any, plan), cast(Any, rows), 4, lambda: order.append("step"), True)
    settle = rules[0]()
    order.append("next round")
    if settle is not None:
        settle()
    each = "[[5], [6]]"
    wanted = {
        (True, False, 0): ["step", "next round", "drafts", f"settle {each}"],
        (True, True, 0): ["step", "drafts", f"mend {each}", "next round", f"settle {each}"],
        (True, False, 1): ["step", "drafts", "make [[5]]", "next round", "settle [[6]]"],
        (False, False, 0): ["drafts", "step", "next round"],
    }
    assert order == wanted[beside, mends, now]
