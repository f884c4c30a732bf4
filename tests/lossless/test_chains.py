"""Chains of drafts: text is that of plain decoding, and drafts are the same however a prompt came into the context.

What a drafter proposes at a place of a text follows from the text alone. So prefix hits, chunks, neighbours, preemption
and snapshots leave acceptance as it is, and a plain implementation over the whole text says what it is.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from services.common.model import load_target
from services.common.pair import attach
from services.target.core.plan import Plan
from services.target.core.request import RequestSpec
from tests.lossless.rig import Done, Proposer, Rig, RigSettings
from tests.lossless.served import chained
from tests.support.tiny_chains import CHAINS
from tests.support.tiny_checkpoints import TinyPair, TinyShape
from tests.unit.common.model.pairs import BLOCK_SIZE, forward, span_at, tables
from tests.unit.common.model.plain_chains import PLAIN_CHAINS
from tests.unit.target.core.specs import GREEDY, SAMPLED, prompt, request

SHAPE = TinyShape(vocab=256, context=256)
SETTINGS = RigSettings(dtype=torch.float64, width=4, slots=2, buckets=(1, 2))
REQUESTS, ALL = 4, 24
Drafts = dict[tuple[str, int], tuple[int, ...]]
"""By request, and the length before the anchor."""
WAYS: dict[str, dict[str, Any]] = {
    "no cache, small chunks": {"prefix_cache": False, "pack_tokens": 16},
    "preempting": {"preemption": True, "blocks": 8},
    "one at a time": {"slots": 1, "buckets": (1,)},
    "small chunks": {"pack_tokens": 16},
    "wide rounds": {"width": 8, "slots": 4, "buckets": (1, 2, 4)},
    "beside prompts": {"mixed": True, "slots": 4, "buckets": (1, 2, 4)},
}
"""Rows lie beside prompts only where no layer is recurrent."""
SAMPLE = 2
"""So many of them by default."""


@pytest.fixture(scope="module", params=sorted(PLAIN_CHAINS))
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def pair(kind: str, tmp_path_factory: pytest.TempPathFactory) -> TinyPair:
    folder: Path = tmp_path_factory.mktemp("chain")
    return CHAINS[kind](folder, 5, SHAPE)


class Noted:
    """A proposer whose drafts are noted, and the context that they are made of."""

    def __init__(self, rig: Rig, inner: Proposer, ran: "Ran") -> None:
        self._rig, self._inner, self._ran = rig, inner, ran

    def draft(self, plan: Plan) -> bool:
        done = self._inner.draft(plan)
        arena, size = self._rig.arena, self._rig.shapes.block_size
        for slot in plan.rows:
            name, length = self._rig.request_of_slot[slot], int(arena.tensor(attach.LENGTH)[slot])
            drafts = tuple(arena.tensor(attach.TOKENS)[slot, : plan.width - 1].tolist())
            assert self._ran.drafts.setdefault((name, length), drafts) == drafts
            blocks = arena.tensor(attach.BLOCK_TABLE)[slot, : -(-length // size)].long()
            self._ran.contexts[name] = arena.tensor(attach.DRAFT_KV)[0][:, blocks].flatten(1, 2)[:, :length]
        return done


def specs(count: int) -> list[RequestSpec]:
    """Two greedy, two sampled; every second begins as another one, by more than two blocks."""
    return [
        request(f"r{n}", (*prompt(n % 2, 40, SHAPE.vocab), *prompt(n, 1 + 5 * n % 37, SHAPE.vocab)), 12,
                (GREEDY, SAMPLED)[n // 2 % 2])
        for n in range(count)
    ]  # fmt: skip


@dataclass
class Ran:
    """What requests said, what was drafted, and how often a request got a slot."""

    done: list[Done] = field(default_factory=list)
    drafts: Drafts = field(default_factory=dict)
    contexts: dict[str, torch.Tensor] = field(default_factory=dict)
    admitted: int = 0

    @property
    def texts(self) -> list[list[int]]:
        return [one.tokens for one in self.done]


def run(pair: TinyPair, settings: RigSettings, count: int = REQUESTS) -> Ran:
    ran, propose = Ran(), chained(pair.drafter)
    how = (lambda rig: Noted(rig, propose(rig), ran)) if settings.width > 1 else None
    with Rig(pair.target, pair.drafter, settings, how) as rig:
        ran.done, ran.admitted = rig.run(specs(count)), rig.admitted
    return ran


@pytest.fixture(scope="module")
def usual(pair: TinyPair) -> Ran:
    return run(pair, SETTINGS)


def test_text_is_that_of_plain_decoding(pair: TinyPair, full: bool) -> None:
    count = ALL if full else REQUESTS
    plain = run(pair, replace(SETTINGS, width=1), count)
    for width in (2, 5, 8) if full else (4,):
        for blocks, preemption in ((96, False), (20, True)) if full else ((96, False),):
            drafted = run(pair, replace(SETTINGS, width=width, blocks=blocks, preemption=preemption), count)
            assert drafted.texts == plain.texts
            assert min(one.drafted for one in drafted.done) > 0


def test_drafts_follow_from_the_text_alone(kind: str, pair: TinyPair, usual: Ran, full: bool) -> None:
    assert any(one.cached for one in usual.done), "the usual way has prefix hits"
    ways = [(way, changes) for way, changes in WAYS.items() if kind != "mtp" or "mixed" not in changes]
    for way, changes in ways[: None if full else SAMPLE]:
        ran, least = run(pair, replace(SETTINGS, **changes)), SETTINGS.width - 1
        assert ran.texts == usual.texts, way
        common = ran.drafts.keys() & usual.drafts.keys()
        assert {key: ran.drafts[key][:least] for key in common} == {key: usual.drafts[key] for key in common}, way
        for name, held in usual.contexts.items():
            length = min(held.shape[1], ran.contexts[name].shape[1])
            torch.testing.assert_close(held[:, :length], ran.contexts[name][:, :length], atol=1e-9, rtol=1e-9)
        if way == "preempting":
            assert ran.admitted > REQUESTS
        elif "width" not in changes and "mixed" not in changes:
            assert [one.accepted for one in ran.done] == [one.accepted for one in usual.done], way
            assert common == usual.drafts.keys() == ran.drafts.keys(), way


def test_a_request_that_moves_drafts_as_before(pair: TinyPair, usual: Ran) -> None:
    """To another target, which computes the prompt and the committed tokens anew."""
    ran, propose, cut = Ran(), chained(pair.drafter), 5
    moved = [
        request(spec.request_id, (*spec.token_ids, *text[:cut]), len(text), spec.sampling,
                prompt_length=len(spec.token_ids))
        for spec, text in zip(specs(REQUESTS), usual.texts, strict=True)
    ]  # fmt: skip
    with Rig(pair.target, pair.drafter, SETTINGS, lambda rig: Noted(rig, propose(rig), ran)) as rig:
        ran.done = rig.run(moved)
    assert ran.texts == [text[cut:] for text in usual.texts]
    common = ran.drafts.keys() & usual.drafts.keys()
    assert {key: ran.drafts[key] for key in common} == {key: usual.drafts[key] for key in common}
    assert len(common) >= REQUESTS, "each is drafted again at a place where it was"


def test_drafts_are_those_of_a_plain_implementation(kind: str, pair: TinyPair, usual: Ran, full: bool) -> None:
    target, plain = (
        load_target(pair.target, torch.float64),
        PLAIN_CHAINS[kind.partition("-")[0]](pair.drafter, torch.float64),
    )
    texts = {spec.request_id: [*spec.token_ids, *text] for spec, text in zip(specs(REQUESTS), usual.texts, strict=True)}
    # Rows that sample draft by the target's noise.
    greedy = [(key, drafts) for key, drafts in usual.drafts.items() if int(key[0][1:]) // 2 % 2 == 0]
    for (name, length), drafts in greedy[:: 1 if full else 6]:
        rows, states = span_at(tables([40], 40), [0], length), target.new_states(41, BLOCK_SIZE)
        features = forward(
            target, torch.tensor([texts[name][:length]]), rows, states, plain.taps(len(target.spec.layers))
        )[1][0]
        said, _ = plain.drafts(texts[name][: length + 1], features, target.embed_VD, target.lm_head_VD, 3)
        assert tuple(said) == drafts
