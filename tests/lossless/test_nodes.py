"""Rounds of nodes say what plain decoding says (I1): trees of the pair's drafter, of the truth, and broken ones."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from services.common.kernels.nodes import MOST_NODES
from services.target.core.request import RequestSpec
from tests.lossless.gate import NODE_PROPOSERS, STRAINS, Case, make_specs, run_case, run_gate
from tests.lossless.pairs import made_up_pair
from tests.lossless.test_grammars import ruled

SEED = 20265
WIDTHS = (2, 5, 8, 16, MOST_NODES)
PROMPTS, PROMPTS_OF_ALL = 2, 40
TOKENS = 48


def specs_of(temperature: float, prompts: int) -> list[RequestSpec]:
    """Requests of which every second asks for all that follows the path of a tree: penalties, biases, least tokens."""
    specs = make_specs(320, prompts, TOKENS, temperature, SEED)
    return [_asking(spec) if index % 2 else spec for index, spec in enumerate(specs)]


def _asking(spec: RequestSpec) -> RequestSpec:
    sampling = replace(
        spec.sampling, repetition_penalty=1.2, presence_penalty=0.3, frequency_penalty=0.2, logit_bias=((7, 2.0),)
    )
    stopping = replace(spec.stopping, min_tokens=20, stop_token_ids=(7, 11, 13))
    return replace(spec, sampling=sampling, stopping=stopping, logprobs=3)


def every_case(dtype: str) -> Iterator[Case]:
    for heat, proposer, width, batch in product((0.0, 0.8), NODE_PROPOSERS, WIDTHS, (1, 4)):
        yield Case(dtype, heat, width, proposer, batch)
    for heat, strain, width in product((0.0, 0.8), STRAINS, WIDTHS):
        yield Case(dtype, heat, width, "nodes-scattered", 4, strain)


def sample(dtype: str) -> list[Case]:
    return [
        Case(dtype, 0.0, 8, "nodes-dflash", 1),
        Case(dtype, 0.8, 16, "nodes-dflash", 4, "hit"),
        Case(dtype, 0.8, 8, "nodes-scattered", 4, "preempted"),
        Case(dtype, 0.0, 16, "nodes-scattered", 4, "moved"),
        Case(dtype, 0.8, MOST_NODES, "nodes-scattered", 1),
        Case(dtype, 0.0, 5, "nodes-broken", 4),
        Case(dtype, 0.8, 8, "nodes-wire-dflash", 4),
    ]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.whole)])
def test_trees_say_nothing_else_than_plain_decoding(dtype: str, full: bool) -> None:
    prompts = PROMPTS_OF_ALL if full else PROMPTS
    cases = list(every_case(dtype)) if full else sample(dtype)
    tally = run_gate(made_up_pair(), cases, lambda heat: specs_of(heat, prompts), SEED)
    assert tally.accepted > tally.tokens // 5
    assert (tally.mismatches, tally.failures) == (0, [])
    assert tally.excused <= (dtype == "float32") * len(cases) // 4


@pytest.mark.timeout(3600)
def test_trees_see_through_windows_what_plain_decoding_sees(full: bool) -> None:
    """Windows hold 24 tokens."""
    prompts = PROMPTS_OF_ALL if full else PROMPTS
    cases = [Case("float64", 0.0, 8, "nodes-scattered", 4, "hit"), Case("float64", 0.8, 16, "nodes-dflash", 1)]
    tally = run_gate(made_up_pair(family="gemma3_text"), cases, lambda heat: specs_of(heat, prompts), SEED)
    assert (tally.mismatches, tally.failures) == (0, [])
    assert tally.accepted > tally.tokens // 10


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("heat", [pytest.param(0.0, marks=pytest.mark.whole), 0.8])
def test_texts_that_grammars_rule_are_those_of_plain_decoding(heat: float, full: bool) -> None:
    """They walk one path of a tree, beside neighbours that walk all of it."""
    specs = ruled(heat, PROMPTS_OF_ALL if full else 5)
    cases = [Case("float64", heat, 8, proposer, 4) for proposer in ("nodes-scattered", "nodes-broken")]
    tally = run_gate(made_up_pair(), cases, lambda _: specs, SEED)
    assert (tally.mismatches, tally.failures) == (0, [])
    assert tally.accepted > tally.tokens // 10


def test_a_chain_that_a_grammar_rules_may_be_longer_than_a_tree() -> None:
    tally = run_gate(
        made_up_pair(), [Case("float64", 0.0, MOST_NODES + 7, "perfect", 1)], lambda _: ruled(0.0, 1), SEED
    )
    assert (tally.mismatches, tally.failures) == (0, [])
    assert tally.accepted > tally.tokens // 2


@pytest.mark.parametrize("heat", [0.0, 0.8])
def test_the_scores_of_tokens_along_a_path_are_those_of_plain_decoding(heat: float) -> None:
    specs = specs_of(heat, 2)[1:]
    plain = run_case(made_up_pair(), Case("float64", heat, 1, "none", 1), specs, {}, SEED)
    truth = {spec.request_id: [*spec.token_ids, *done.tokens] for spec, done in zip(specs, plain, strict=True)}
    trees = run_case(made_up_pair(), Case("float64", heat, 8, "nodes-scattered", 1), specs, truth, SEED)
    assert trees[0].accepted > 8
    for one, other in zip(plain[0].logprobs, trees[0].logprobs, strict=True):
        assert other.chosen == pytest.approx(one.chosen, abs=1e-9)
        assert [token for token, _ in other.top] == [token for token, _ in one.top]
