"""At a fixed width the same requests, all sent before the first round, meet the same drafts, rounds and tau again."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from services.common.pair import attach
from services.target.core.plan import Plan
from services.target.core.request import RequestSpec
from tests.lossless.gate import make_specs
from tests.lossless.pairs import made_up_pair
from tests.lossless.rig import Proposer, ProposerFactory, Rig, RigSettings
from tests.lossless.served import dflash, ngram

WIDTH, TOKENS, REQUESTS = 4, 24, 6
PAIR = made_up_pair()
SETTINGS = RigSettings(width=WIDTH, slots=4, buckets=(4,), pack_tokens=128, prefix_cache=False)


@dataclass
class Watched:
    """Keeps what a proposer drafted for each request, round by round."""

    rig: Rig
    proposer: Proposer
    drafts: dict[str, list[list[int]]] = field(default_factory=lambda: defaultdict(list))

    def draft(self, plan: Plan) -> bool:
        """Fills the mailbox and reads it."""
        drafted = self.proposer.draft(plan)
        tokens_SK = self.rig.arena.tensor(attach.TOKENS)
        for slot in plan.rows:
            self.drafts[self.rig.request_of_slot[slot]].append(tokens_SK[slot, : plan.width - 1].tolist())
        return drafted


def watched(factory: ProposerFactory) -> ProposerFactory:
    def build(rig: Rig) -> Proposer:
        return Watched(rig, factory(rig))

    return build


def requests() -> list[RequestSpec]:
    """Greedy and sampled ones, more than there are slots."""
    kinds = [make_specs(320, REQUESTS, TOKENS, temperature, 5) for temperature in (0.0, 0.8)]
    return [kinds[index % 2][index] for index in range(REQUESTS)]


@dataclass
class Course:
    """What one request met; `tokens` are its text."""

    drafts: list[list[int]]
    tokens: list[int]
    rounds: int
    accepted: int


def courses(rig: Rig, specs: Sequence[RequestSpec]) -> dict[str, Course]:
    """Runs requests to their end."""
    proposer = rig.proposer
    assert isinstance(proposer, Watched)
    proposer.drafts.clear()
    done = rig.run(specs)
    return {
        spec.request_id: Course(proposer.drafts[spec.request_id], one.tokens, one.rounds, one.accepted)
        for spec, one in zip(specs, done, strict=True)
    }


@pytest.mark.parametrize("propose", [dflash(PAIR.drafter), ngram()], ids=["dflash", "ngram"])
def test_drafts_rounds_and_tau_are_the_same_twice_in_a_row(propose: ProposerFactory) -> None:
    with Rig(PAIR.target, PAIR.drafter, SETTINGS, watched(propose)) as rig:
        before = rig.rounds
        first = courses(rig, requests())
        took = rig.rounds - before
        assert courses(rig, requests()) == first
        assert rig.rounds - before == 2 * took
    assert all(course.drafts for course in first.values())
    assert sum(course.accepted for course in first.values()) > 0
    assert len({tuple(map(tuple, course.drafts)) for course in first.values()}) == REQUESTS


def test_synthetic_acceptance_is_of_the_request_alone() -> None:
    """Other neighbours, slots and rounds: each request has the same rounds and accepts as many drafts."""
    rates = (0.8, 0.5, 0.3)

    def run(slots: int, specs: list[RequestSpec]) -> dict[str, tuple[int, int]]:
        settings = replace(SETTINGS, slots=slots, buckets=(slots,), synthetic_acceptance=rates)
        with Rig(PAIR.target, PAIR.drafter, settings, watched(dflash(PAIR.drafter))) as rig:
            return {name: (course.rounds, course.accepted) for name, course in courses(rig, specs).items()}

    together = run(4, requests())
    assert run(1, requests()[::-1]) == together
    accepted, rounds = sum(one[1] for one in together.values()), sum(one[0] for one in together.values())
    assert accepted / rounds == pytest.approx(sum(rates), abs=0.5)
    assert len({*together.values()}) > 1


def test_synthetic_acceptance_of_trees_is_of_the_request_alone() -> None:
    """By position: trees of other sizes go on where others are."""

    def run(slots: int, specs: list[RequestSpec]) -> dict[str, tuple[int, int]]:
        settings = replace(
            SETTINGS, width=8, slots=slots, buckets=(slots,), nodes=True, synthetic_acceptance=(0.7, 0.5, 0.3),
            synthetic_siblings=(0.5, 0.3),
        )  # fmt: skip
        with Rig(PAIR.target, PAIR.drafter, settings, watched(dflash(PAIR.drafter))) as rig:
            return {name: (course.rounds, course.accepted) for name, course in courses(rig, specs).items()}

    together = run(4, requests())
    assert run(1, requests()[::-1]) == together
    accepted, rounds = sum(one[1] for one in together.values()), sum(one[0] for one in together.values())
    assert 1.0 < accepted / rounds < 3.0
