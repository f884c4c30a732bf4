"""Requests of every way of sampling beside one another have the texts, and take the rounds, that they have alone.

Drafts make the target's noise of its seeds, as on a GPU.
"""

import json
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from services.common.request.sampling import LOWEST_TEMPERATURE, SamplingParams, SpeculationParams
from services.target.core.request import RequestSpec
from tests.bench.nodes_offline import tokens_of
from tests.lossless.rig import Done, Rig, RigSettings
from tests.lossless.served import Served, dflash
from tests.lossless.test_served_tau import TARGET, drafter_of
from tests.unit.target.core.specs import request

CHAINS = RigSettings(width=8, slots=4, buckets=(1, 2, 4), context_limit=192, seeded=True)
TREES = replace(CHAINS, nodes=True, blocks=128)
CASES = {"chains": CHAINS, "trees": TREES}
HEATS = (LOWEST_TEMPERATURE, 0.0001, 0.3, 0.8, 0.8, 2.0)
SEEDS = (0, 1, 1 << 31, (1 << 53) - 1, (1 << 64) - 1)


def _sampling(draw: random.Random, greedy: bool) -> SamplingParams:
    """Any way of sampling; about every second one has filters, penalties or a bias."""
    heat = 0.0 if greedy else draw.choice(HEATS)
    plain = SamplingParams(temperature=heat, seed=draw.choice((*SEEDS, draw.getrandbits(53))))
    if draw.random() < 0.5:
        return plain
    return replace(
        plain, top_k=draw.choice((0, 1, 20)), top_p=draw.choice((1.0, 0.7)), min_p=draw.choice((0.0, 0.05)),
        repetition_penalty=draw.choice((1.0, 1.2)), presence_penalty=draw.choice((0.0, 0.5)),
        logit_bias=draw.choice(((), ((5, 1.5), (9, -4.0)))),
    )  # fmt: skip


def _asked(count: int, seed: int) -> list[RequestSpec]:
    """Requests of held-out prompts; one of three is greedy, and one request runs to its context's end."""
    draw = random.Random(seed)
    held_out = json.loads((TARGET.parent / "heldout_prompts.json").read_text("utf-8"))[:count]
    return [
        request(
            f"r{index}", ids, 400 if index == 1 else draw.randrange(1, 48), _sampling(draw, index % 3 == 0),
            logprobs=draw.choice((None, 2)), speculation=SpeculationParams(max_draft=draw.choice((None, None, 2))),
        )
        for index, ids in enumerate(tokens_of(TARGET, held_out))
    ]  # fmt: skip


def _alone(settings: RigSettings, specs: list[RequestSpec], drafted: bool) -> list[Done]:
    drafter = drafter_of("dflash2") if drafted else None
    with Rig(TARGET, drafter, settings, dflash(drafter) if drafter else None) as rig:
        return [rig.run([spec])[0] for spec in specs]


@pytest.mark.parametrize("case", CASES)
def test_rounds_of_a_request_are_those_that_it_has_alone(
    case: str, full: bool, report_counts: Callable[[str, int], None]
) -> None:
    settings, drafter = CASES[case], drafter_of("dflash2")
    specs = _asked(24 if full else 8, seed=86)
    own = _alone(settings, specs, drafted=True)
    plain = _alone(replace(settings, width=1, nodes=False), specs, drafted=False)
    with Rig(TARGET, drafter, settings, dflash(drafter)) as rig:
        assert isinstance(rig.proposer, Served)
        warm = rig.proposer.counters.captures
        beside = rig.run(specs)
        assert rig.proposer.counters.captures == warm
    for spec, one, other, without in zip(specs, own, beside, plain, strict=True):
        told = [(done.tokens, done.end, len(done.logprobs)) for done in (one, other, without)]
        assert told[0] == told[1] == told[2], spec
        assert (other.rounds, other.accepted) == (one.rounds, one.accepted), spec
        chances = [[place.chosen for place in done.logprobs] for done in (one, other, without)]
        assert chances[1] == pytest.approx(chances[0], abs=1e-3)
        assert chances[1] == pytest.approx(chances[2], abs=1e-3)
    report_counts("tokens_compared", sum(len(one.tokens) for one in own))
