"""Rounds that are replayed over a text are those in which a pair wrote it."""

import pytest

from services.common.request.sampling import SamplingParams
from tests.bench.nodes_offline import Text, read_pair
from tests.bench.served_replay import ServedReplay
from tests.lossless.rig import Rig, RigSettings
from tests.lossless.served import dflash
from tests.unit.target.core.specs import GREEDY, request

PROMPTS, DRAFTS, TOKENS = 2, 7, 40
SAMPLED = SamplingParams(temperature=0.8, seed=7)


@pytest.mark.parametrize("sampled", [False, True], ids=["greedy", "sampled"])
def test_replayed_rounds_are_those_of_a_rig(sampled: bool) -> None:
    pair = read_pair("embedded", PROMPTS)
    settings = RigSettings(width=DRAFTS + 1, prefix_cache=False)
    specs = [request(f"r{row}", ids, TOKENS, SAMPLED if sampled else GREEDY) for row, ids in enumerate(pair.prompts)]
    with Rig(pair.target, pair.drafter, settings, dflash(pair.drafter)) as rig:
        done = rig.run(specs)
    replay = ServedReplay(pair.target, pair.drafter)
    texts = [
        Text([*spec.token_ids, *one.tokens], len(spec.token_ids), spec.sampling)
        for spec, one in zip(specs, done, strict=True)
    ]
    rounds = [replay.rounds(text, DRAFTS) for text in texts]
    assert sum(one.accepted for one in done) > TOKENS // 2
    assert sum(rounds) == pytest.approx(sum(one.rounds for one in done), rel=0.02)
    wrong = [
        Text([*text.ids[: text.start], *reversed(text.ids[text.start :])], text.start, text.sampling) for text in texts
    ]
    assert sum(replay.rounds(text, DRAFTS) for text in wrong) > sum(rounds), "other texts are no draft's"
