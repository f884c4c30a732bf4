"""A hybrid that goes on from snapshots says what it says cold: next turns, moves, and random lives with evictions."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import pytest
import torch

from services.common.model.states.recurrent import RecurrentStates
from services.common.request.sampling import SamplingParams
from services.target.core.request import RequestSpec
from tests.lossless.pairs import Pair, made_up_pair
from tests.lossless.proposers import adversarial, perfect
from tests.lossless.rig import Rig, RigSettings
from tests.unit.target.core.specs import GREEDY, SAMPLED, prompt, request

FLOAT64 = RigSettings(dtype=torch.float64, slots=2, buckets=(1, 2))
PENALISED = SamplingParams(repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.3)
TEXT = prompt(5, 120)


def hybrid() -> Pair:
    return made_up_pair(family="qwen3_5")


def cold(specs: list[RequestSpec]) -> list[list[int]]:
    """What requests say one token at a time, alone, with nothing cached."""
    settings = replace(FLOAT64, slots=1, buckets=(1,), prefix_cache=False)
    with Rig(hybrid().target, None, settings) as rig:
        return [done.tokens for done in rig.run(specs)]


@pytest.mark.parametrize("width", [1, 16])
def test_the_next_turn_of_a_chat_computes_little_more_than_what_is_new(width: int) -> None:
    pair, tokens, new = hybrid(), 30, prompt(7, 9)
    ask = request("first", prompt(6, 50), tokens)
    said = cold([ask])[0]
    turns = [request(f"next-{cut}", (*ask.token_ids, *said[:cut], *new), 6) for cut in (tokens, tokens - 1)]
    truth = {spec.request_id: [*ask.token_ids, *said] for spec in (ask, *turns)}
    with Rig(pair.target, None, replace(FLOAT64, width=width), perfect(truth) if width > 1 else None) as rig:
        assert rig.run([ask])[0].tokens == said
        before = rig.prefilled
        answers = [rig.run([turn])[0] for turn in turns]
        assert rig.prefilled - before <= 2 * (32 + len(new))
        assert rig.snapshots is not None and rig.snapshots.hits == 2
    assert [answer.tokens for answer in answers] == cold(turns)


def test_a_moved_request_goes_on_from_a_snapshot_that_the_other_target_has() -> None:
    """One that served the same prompt has it; one that did not computes all of it."""
    ask = replace(request("moved", TEXT[:70], 20), sampling=SAMPLED)
    said = cold([ask])[0]
    moved = replace(ask, token_ids=(*ask.token_ids, *said[:11]))
    for served, found in ((True, 64), (False, 0)):
        with Rig(hybrid().target, None, FLOAT64) as rig:
            if served:
                rig.run([request("other", TEXT[:70], 2)])
            done = rig.run([moved])[0]
        assert (done.tokens, done.cached) == (said[11:], found)


def lives(seed: int, count: int, ahead: int = 0) -> list[RequestSpec]:
    """Prompts that are beginnings of one text, at and beside its block boundaries, often with an end of their own."""
    pick = random.Random(seed)
    specs = []
    ways = (GREEDY, PENALISED) if ahead else (SAMPLED, replace(SAMPLED, seed=4))
    for index in range(count):
        cut = pick.choice([*range(16, 97, 16), pick.randrange(4, 100)])
        ids = (*TEXT[:cut], *prompt(pick.randrange(3), pick.choice((0, 0, 3, 20))))
        specs.append(request(f"l{index}", ids, pick.randrange(3, 24), pick.choice(ways)))
    return specs


def live(rig: Rig, specs: list[RequestSpec], seed: int) -> None:
    """All requests, a few at a time; between rounds snapshots and blocks are lost.

    Requests are cancelled where no round is in flight: the rig compares what host and device say of each.
    """
    pick, waiting = random.Random(seed), list(specs)
    assert rig.snapshots is not None
    pool = rig.scheduler._pool
    while waiting or rig.scheduler.live():
        if waiting and len(rig.scheduler.live()) < 4:
            rig.submit(waiting.pop())
        rig.step()
        if pick.random() < 0.06 and rig.snapshots.names:
            rig.snapshots.forget(pick.choice(sorted(rig.snapshots.names)))
        if pick.random() < 0.02:
            pool.release(pool.take(pool.available), 0)
        if pick.random() < 0.02 and rig.scheduler.live() and not rig.settings.look_ahead:
            rig.scheduler.cancel(pick.choice(rig.scheduler.live()).uid, 0.0)
        rig.scheduler.check()


@cache
def unhurried(seed: int, count: int, ahead: int) -> dict[str, list[int]]:
    """What the requests of random lives say cold."""
    specs = lives(seed, count, ahead)
    return dict(zip([spec.request_id for spec in specs], cold(specs), strict=True))


def differing(seed: int, count: int, ahead: int = 0) -> tuple[int, int]:
    """How many of random lives say anything else than cold, and how often they went on from a snapshot.

    `ahead` rounds are launched before the one in front is read.
    """
    specs, expected = lives(seed, count, ahead), unhurried(seed, count, ahead)
    truth = {spec.request_id: [*spec.token_ids, *expected[spec.request_id]] for spec in specs}
    settings = replace(FLOAT64, width=8, slots=3, buckets=(1, 2, 3), snapshots=4)
    strained = replace(settings, look_ahead=ahead) if ahead else replace(settings, blocks=16, preemption=True)
    with Rig(hybrid().target, None, strained, adversarial(truth, seed)) as rig:
        live(rig, specs, seed)
        assert rig.snapshots is not None
        said = {name: done.tokens for name, done in rig.done.items()}
    return sum(said[name] != text[: len(said[name])] for name, text in expected.items()), rig.snapshots.hits


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("ahead", [pytest.param(0, marks=pytest.mark.whole), 1])
def test_hits_preemptions_and_evictions_in_any_order_change_nothing(ahead: int, full: bool) -> None:
    runs = [differing(seed, 50, ahead) for seed in range(10)] if full else [differing(11, 9, ahead)]
    assert sum(wrong for wrong, _ in runs) == 0
    assert all(hits > 1 for _, hits in runs)


@contextmanager
def _restoring(monkeypatch: pytest.MonkeyPatch, shift: int, moved: int) -> Iterator[None]:
    resume = RecurrentStates.resume

    def wrong(states: RecurrentStates, slot: int, place: int, folded: int) -> None:
        resume(states, slot, (place + shift) % 4, folded)
        states.tensors[2][slot] -= moved

    with monkeypatch.context() as patch:
        patch.setattr(RecurrentStates, "resume", wrong)
        yield


@pytest.mark.parametrize(("shift", "moved"), [(1, 0), (0, 16)], ids=["another's", "another boundary"])
def test_a_wrong_snapshot_is_seen(monkeypatch: pytest.MonkeyPatch, shift: int, moved: int) -> None:
    with _restoring(monkeypatch, shift, moved):
        assert differing(11, 9)[0] > 0
