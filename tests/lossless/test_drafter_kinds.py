"""Text is the same with every kind of drafter as without one: widths, neighbours, hits, preemption (I1)."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.lossless.rig import Done, Rig, RigSettings
from tests.lossless.served import dflash
from tests.support.tiny_checkpoints import DRAFTERS, TinyPair, TinyShape, write_tiny
from tests.unit.target.core.specs import GREEDY, SAMPLED, prompt, request

SHAPE = TinyShape(vocab=256, context=256)
SETTINGS = RigSettings(dtype=torch.float64)
REQUESTS, ALL = 6, 24


@pytest.fixture(scope="module", params=sorted(DRAFTERS))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    folder: Path = tmp_path_factory.mktemp("kind")
    return write_tiny(folder, 5, SHAPE, drafter=DRAFTERS[request.param])


def texts(pair: TinyPair, settings: RigSettings, count: int) -> tuple[list[list[int]], list[Done]]:
    """Requests of many lengths, greedy and sampled in turn; every third begins as another one."""
    specs = [
        request(f"r{n}", (*prompt(n % 3, 20, SHAPE.vocab), *prompt(n, 1 + 5 * n % 37, SHAPE.vocab)), 24,
                (GREEDY, SAMPLED)[n % 2])
        for n in range(count)
    ]  # fmt: skip
    propose = dflash(pair.drafter) if settings.width > 1 else None
    with Rig(pair.target, pair.drafter, settings, propose) as rig:
        done = rig.run(specs)
    return [one.tokens for one in done], done


CASES = [(2, True), (5, False), (8, True), (2, False), (5, True), (8, False)]
"""Widths, and whether requests are preempted. Each width and each kind of room is among the first three, the sample."""
SAMPLE = 3


def test_every_kind_says_what_plain_decoding_says(pair: TinyPair, full: bool) -> None:
    count = ALL if full else REQUESTS
    plain, _ = texts(pair, SETTINGS, count)
    for width, preemption in CASES if full else CASES[:SAMPLE]:
        settings = replace(SETTINGS, width=width, preemption=preemption, blocks=20 if preemption else SETTINGS.blocks)
        drafted, done = texts(pair, settings, count)
        assert drafted == plain, (width, preemption)
        assert sum(one.drafted for one in done) > 0
