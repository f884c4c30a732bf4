"""Rounds that are launched before the last one is read give the text of rounds in turn (docs/adr/0010)."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from services.common.request.constraint import Rule, Thought
from services.common.request.grammar import Grammar
from services.common.request.sampling import SamplingParams
from services.target.core.request import RequestSpec
from services.target.device.drafted import Path
from services.target.device.masks import Masks, Row
from services.target.device.state import Rows
from tests.lossless.gate import EOS
from tests.lossless.pairs import made_up_pair
from tests.lossless.proposers import adversarial
from tests.lossless.rig import Done, Rig, RigSettings
from tests.lossless.test_grammars import FEW, ruled
from tests.unit.target.core.specs import GREEDY, prompt, request

PENALISED = SamplingParams(repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.3, logit_bias=((5, 1.5),))


def requests() -> list[RequestSpec]:
    """More than there are slots, some with long prompts, some of one token."""
    return [
        request(
            f"r{n}", prompt(n, 1 + 31 * n % 150), 1 + 17 * n % 40, (GREEDY, PENALISED)[n % 2], logprobs=n % 3 or None
        )
        for n in range(14)
    ]


def said(done: Done) -> object:
    """Tokens, end and chosen log-probabilities of a request."""
    return done.tokens, done.end, [round(one.chosen, 6) for one in done.logprobs]


@pytest.mark.parametrize("preemption", [False, True])
@pytest.mark.parametrize("look_ahead", [1, 2])
def test_text_is_that_of_rounds_in_turn(look_ahead: int, preemption: bool) -> None:
    pair, specs = made_up_pair(), requests()
    with Rig(pair.target, pair.drafter, RigSettings(dtype=torch.float64)) as rig:
        wanted = rig.run(specs)
    truth = {spec.request_id: [*spec.token_ids, *done.tokens] for spec, done in zip(specs, wanted, strict=True)}
    settings = RigSettings(dtype=torch.float64, width=4, blocks=30, look_ahead=look_ahead, preemption=preemption)
    with Rig(pair.target, pair.drafter, settings, adversarial(truth, seed=5)) as rig:
        assert [said(done) for done in rig.run(specs)] == [said(done) for done in wanted]


@pytest.mark.parametrize("budget", [None, 10_000])
def test_no_round_waits_for_masks_that_no_rule_needs(budget: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a rule, or where it is far."""
    pair, specs = made_up_pair(), [request(f"r{n}", prompt(n, 9), 24) for n in range(3)]
    if budget is not None:
        far = Grammar(Rule(thought=Thought(60, 61, True, budget, (61,))), None, frozenset({0}))
        specs[1] = replace(specs[1], grammar=far)
    made, make = list[int](), Masks.make

    def told(masks: Masks, held: Rows, drafts: Sequence[Path], width: int, number: int) -> None:
        made.append(number)
        make(masks, held, drafts, width, number)

    monkeypatch.setattr(Masks, "make", told)
    with Rig(pair.target, pair.drafter, RigSettings(look_ahead=1)) as rig:
        assert [len(done.tokens) for done in rig.run(specs)] == [24] * 3
    assert not made


@pytest.mark.parametrize(("look_ahead", "peeks"), [(0, False), (1, False), (1, True)])
def test_a_row_whose_masks_come_too_late_commits_nothing_in_that_round(
    look_ahead: int, peeks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its text is the same, and neighbours go on."""
    pair, specs = made_up_pair(), ruled(0.0, 2 * FEW)
    settings = RigSettings(dtype=torch.float64, eos_ids=EOS)
    with Rig(pair.target, pair.drafter, settings) as rig:
        wanted = rig.run(specs)
        rounds = rig.rounds
    source, late = random.Random(5), list[int]()

    def slow(made: Callable[..., None]) -> Callable[..., None]:
        def some(masks: Masks, held: Rows, drafts: Sequence[Path], *told: object) -> None:
            rows = [row for row in zip(held, drafts, strict=True) if source.random() < 0.6]
            late.append(len(held) - len(rows))
            made(masks, [seated for seated, _ in rows], [draft for _, draft in rows], *told)

        return some

    monkeypatch.setattr(Masks, "make", slow(Masks.make))
    monkeypatch.setattr(Masks, "settle", slow(Masks.settle))
    if not peeks:
        monkeypatch.setattr(Masks, "parted", all_at_once)
    with Rig(pair.target, pair.drafter, replace(settings, look_ahead=look_ahead)) as rig:
        assert [(one.tokens, one.end) for one in rig.run(specs)] == [(one.tokens, one.end) for one in wanted]
        assert rig.rounds > rounds
    assert sum(late) > 20


def all_at_once(masks: Masks, rows: Rows, peeks: bool, forward_us: float) -> tuple[Rows, Rows]:
    """No row waits for its choice."""
    return rows, []


@pytest.mark.parametrize("peeks", [False, True])
def test_rows_that_missed_a_round_come_first(peeks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else those behind many others would starve."""
    pair, source, order = made_up_pair(), random.Random(7), list[list[int]]()
    fill, choose = Masks._fill, Masks._choose

    def noted(masks: Masks, rows: Sequence[Row], width: int) -> None:
        if order:
            order[-1] += [seat.missed for _, seat, _ in rows]
        fill(masks, rows, width)

    def noted_choice(masks: Masks, row: Row, *told: Any) -> None:
        order[-1].append(row[1].missed)
        choose(masks, row, *told)

    def after_misses(made: Callable[..., None]) -> Callable[..., None]:
        def told(masks: Masks, held: Rows, *others: object) -> None:
            order.append([])
            for _, seat in held:
                seat.missed = source.randrange(4)
            made(masks, held, *others)
            order.append([])

        return told

    monkeypatch.setattr(Masks, "_fill", noted)
    monkeypatch.setattr(Masks, "_choose", noted_choice)
    monkeypatch.setattr(
        Masks, "settle" if peeks else "make", after_misses(getattr(Masks, "settle" if peeks else "make"))
    )
    if not peeks:
        monkeypatch.setattr(Masks, "parted", all_at_once)
    with Rig(pair.target, pair.drafter, RigSettings(dtype=torch.float64, eos_ids=EOS)) as rig:
        rig.run(ruled(0.0, 5))
    assert any(len(set(missed)) > 1 for missed in order[::2])
    assert all(missed == sorted(missed, reverse=True) for missed in order[::2])
