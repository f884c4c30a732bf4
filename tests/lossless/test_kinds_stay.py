"""Every kind of drafter on a CPU: after warm-up nothing is captured, and no memory moves (I4)."""

from dataclasses import astuple
from pathlib import Path

import pytest

from services.common.device.graph import Counters
from services.target.core.request import RequestSpec
from tests.lossless.rig import Proposer, ProposerFactory, Rig, RigSettings
from tests.lossless.served import Served, chained, dflash
from tests.support.tiny_chains import CHAINS
from tests.support.tiny_checkpoints import TinyShape
from tests.support.tiny_kinds import PAIRS
from tests.unit.target.core.specs import GREEDY, SAMPLED, prompt, request

SHAPE = TinyShape(vocab=256, context=256)
SETTINGS = RigSettings(width=4, slots=4, buckets=(1, 2, 4), blocks=40, preemption=True, context_limit=128)
BY_DEFAULT = ("dflash2", "eagle3")


def specs(turn: str, count: int) -> list[RequestSpec]:
    """Greedy and sampled ones of many lengths; every third begins as another one."""
    return [
        request(f"{turn}{n}", (*prompt(n % 3, 20, SHAPE.vocab), *prompt(n, 1 + 7 * n % 53, SHAPE.vocab)), 24,
                (GREEDY, SAMPLED)[n % 2])
        for n in range(count)
    ]  # fmt: skip


def moved(counters: Counters) -> tuple[int, int, int]:
    """Captures, recaptures and tensors that have moved."""
    return counters.captures, counters.recaptures, counters.reallocations


@pytest.mark.parametrize("kind", sorted(PAIRS))
def test_nothing_is_captured_and_nothing_moves(kind: str, tmp_path: Path, full: bool) -> None:
    """However long texts grow, however requests come and go, are preempted and find what others left."""
    if kind not in BY_DEFAULT and not full:
        return
    pair, served = PAIRS[kind](tmp_path, 5, SHAPE), list[Served]()
    build: ProposerFactory = (chained if kind in CHAINS else dflash)(pair.drafter)

    def noted(rig: Rig) -> Proposer:
        found = build(rig)
        assert isinstance(found, Served)
        served.append(found)
        return found

    with Rig(pair.target, pair.drafter, SETTINGS, noted) as rig:
        warm = rig.runner.graphs(), served[0].counters
        done = rig.run(specs("a", 12 if full else 6))
        after = rig.runner.graphs(), served[0].counters
        assert sum(one.drafted for one in done) > 0 and any(one.cached for one in done)
        for before, now in zip(warm, after, strict=True):
            assert moved(now) == moved(before) and moved(now)[1:] == (0, 0)
            assert before.captures > 0 and now.replays > before.replays, astuple(now)
