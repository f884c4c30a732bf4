"""Forced and forbidden tokens are lossless: speculation, neighbours, preemption, moves and hits change nothing."""

import random
from dataclasses import replace

import pytest
import torch

from services.common.request.constraint import Rule, Thought, Words
from services.common.request.grammar import Grammar
from services.target.core.request import RequestSpec
from tests.lossless.gate import EOS, Case, hybrid_arms, make_specs, run_case, run_gate
from tests.lossless.pairs import made_up_pair
from tests.lossless.proposers import adversarial, perfect
from tests.lossless.rig import Rig, RigSettings

SEED, VOCAB, TOKENS = 20263, 320, 64
FEW, MANY = 8, 1000
OPENING, CLOSING = 310, 311
ENDING = (20, 21, CLOSING)
SHAPES = (
    ("perfect", 4, ""),
    ("ngram", 8, ""),
    ("none", 1, "preempted"),
    ("adversarial", 8, "preempted"),
    ("perfect", 8, "moved"),
    ("perfect", 4, "hit"),
)


def ruled(temperature: float, count: int) -> list[RequestSpec]:
    """Requests of which every fourth has no rule: a neighbour."""
    plain = make_specs(VOCAB, count, TOKENS, temperature, SEED)
    return [spec if index % 4 == 3 else replace(spec, grammar=rule(index)) for index, spec in enumerate(plain)]


def rule(index: int) -> Grammar:
    """Budgets that end soon, late and never; some beside words that never come."""
    source = random.Random(index)
    thought = Thought(OPENING, CLOSING, True, source.choice((0, 7, 20, 41, 4000)), ENDING)
    banned = tuple(tuple(source.randrange(VOCAB) for _ in range(1 + count % 2)) for count in range(200))
    return Grammar(Rule(thought=thought, words=Words((), banned if index % 4 == 1 else ())), None, frozenset(EOS))


def check_answers(specs: list[RequestSpec], outputs: list[list[int]]) -> int:
    """Every thought is closed at its budget, and no word comes; the number of thoughts that were."""
    closed = 0
    for spec, output in zip(specs, outputs, strict=True):
        if spec.grammar is None or (thought := spec.grammar.rule.thought) is None or thought.budget is None:
            continue
        alone = {word[0] for word in spec.grammar.rule.words.banned if len(word) == 1} - set(ENDING)
        assert not alone & set(output)
        if CLOSING not in output[: thought.budget] and len(output) > thought.budget:
            behind = output[thought.budget :]
            assert behind[: len(ENDING)] == [*ENDING[: len(behind)]]
            closed += 1
    return closed


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_text_is_that_of_plain_decoding(temperature: float, full: bool) -> None:
    specs = ruled(temperature, MANY if full else FEW // 2)
    shapes = SHAPES if full else SHAPES[-3:]
    cases = [Case("float64", temperature, width, proposer, 4, strain) for proposer, width, strain in shapes]
    tally = run_gate(made_up_pair(), cases, lambda _: specs, SEED)
    assert (tally.mismatches, tally.failures) == (0, [])
    assert tally.accepted > tally.tokens // 5
    outputs = run_case(made_up_pair(), Case("float64", temperature, 1, "none", 4), specs, {}, SEED)
    assert check_answers(specs, [done.tokens for done in outputs]) >= len(specs) // 3


@pytest.mark.timeout(7200)
def test_text_of_a_hybrid_is_that_of_plain_decoding(full: bool) -> None:
    pair = made_up_pair(family="qwen3_5")
    cases = [*hybrid_arms("qwen3_5", "float64", 0.8)] if full else [Case("float64", 0.8, 8, "perfect", 4, "moved")]
    tally = run_gate(pair, cases, lambda heat: ruled(heat, MANY if full else 5), SEED)
    assert (tally.mismatches, tally.failures) == (0, [])
    assert tally.accepted > 0


@pytest.mark.parametrize("width", [pytest.param(2, marks=pytest.mark.whole), 4])
def test_rounds_that_are_launched_ahead_wait_where_a_token_may_be_forced(width: int) -> None:
    """As on a GPU, where a thought that is far from its budget looks ahead; right drafts use budgets up the soonest."""
    pair, specs = made_up_pair(), ruled(0.0, FEW)
    settings = RigSettings(dtype=torch.float64, eos_ids=EOS)
    with Rig(pair.target, pair.drafter, settings) as rig:
        wanted = rig.run(specs)
    assert check_answers(specs, [done.tokens for done in wanted]) >= FEW // 4
    truth = {spec.request_id: [*spec.token_ids, *done.tokens] for spec, done in zip(specs, wanted, strict=True)}
    ahead = replace(settings, width=width, look_ahead=1)
    for proposer in (adversarial(truth, seed=5), perfect(truth)):
        with Rig(pair.target, pair.drafter, ahead, proposer) as rig:
            assert [(one.tokens, one.end) for one in rig.run(specs)] == [(one.tokens, one.end) for one in wanted]
