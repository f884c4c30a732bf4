"""The hybrid's own trained head at K = 3: prefix hits, chunks and snapshots leave what it accepts as it is.

Requests share more than two blocks; the later ones find them with the recurrent states that were kept there.
"""

import json
from dataclasses import replace
from typing import Any

import pytest

from models.training.settings import MODELS, PRESETS
from services.target.core.request import RequestSpec
from tests.bench.nodes_offline import tokens_of
from tests.lossless.rig import Done, Rig, RigSettings
from tests.lossless.served import chained
from tests.unit.target.core import specs as short

HYBRID = PRESETS["hybrid"].out / "target"
DRAFTS, SHARED, TOKENS = 3, 40, 32
USUAL = RigSettings(width=DRAFTS + 1, slots=4, buckets=(1, 2, 4), context_limit=256, blocks=96)
WAYS: dict[str, dict[str, Any]] = {
    "no cache": {"prefix_cache": False},
    "no cache, small chunks": {"prefix_cache": False, "pack_tokens": 16},
    "small chunks": {"pack_tokens": 16},
    "one at a time": {"slots": 1, "buckets": (1,)},
}


def specs(count: int) -> list[RequestSpec]:
    """Held-out prompts behind one beginning, greedy and sampled ones in turn."""
    held_out = json.loads((MODELS / "embedded" / "heldout_prompts.json").read_text("utf-8"))
    told = tokens_of(HYBRID, held_out[: count + 4])
    shared = [token for ids in told[count:] for token in ids][:SHARED]
    return [
        short.request(f"r{row}", (*shared, *ids), TOKENS, replace((short.GREEDY, short.SAMPLED)[row % 2], seed=row))
        for row, ids in enumerate(told[:count])
    ]


def run(settings: RigSettings, asked: list[RequestSpec]) -> list[Done]:
    with Rig(HYBRID, HYBRID, settings, chained(HYBRID)) as rig:
        # States are kept where a second request leaves the way of the first; the third finds them.
        return [*rig.run(asked[:1]), *rig.run(asked[1:2]), *rig.run(asked[2:])]


@pytest.fixture(scope="module")
def usual() -> tuple[list[RequestSpec], list[Done]]:
    asked = specs(12)
    return asked, run(USUAL, asked)


@pytest.mark.parametrize("way", WAYS)
def test_acceptance_is_the_same_with_and_without_hits(way: str, full: bool, request: pytest.FixtureRequest) -> None:
    if not full:  # `test_chains` shows it of tiny pairs
        return
    asked, done = request.getfixturevalue("usual")
    assert all(one.cached >= 32 for one in done[2:]), "later requests find the beginning"
    other = run(replace(USUAL, **WAYS[way]), asked)
    if not WAYS[way].get("prefix_cache", True):
        assert not any(one.cached for one in other)
    assert [one.tokens for one in other] == [one.tokens for one in done]
    assert [(one.rounds, one.accepted) for one in other] == [(one.rounds, one.accepted) for one in done]
    assert sum(one.accepted for one in done) > 0.5 * sum(one.rounds for one in done)
