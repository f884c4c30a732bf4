"""Rounds whose requests have chains of any lengths say what plain decoding says (I1)."""

from collections.abc import Iterator
from itertools import product

import pytest

from tests.lossless.gate import PROPOSERS, STRAINS, Case, run_case, run_gate
from tests.lossless.pairs import made_up_pair
from tests.lossless.test_grammars import ruled
from tests.lossless.test_nodes import specs_of

SEED = 65
WIDTH = 8
SHAPES = ((8, 1), (14, 2), (20, 4), (27, 1))
"""Rows together, and those of a piece: of four requests, so that few or many of them are short."""
PROMPTS, PROMPTS_OF_ALL = 4, 40


def every_case(dtype: str) -> Iterator[Case]:
    for heat, proposer, (rows, grain) in product((0.0, 0.8), PROPOSERS, SHAPES):
        yield Case(dtype, heat, WIDTH, proposer, 4, ragged=rows, grain=grain)
    for heat, strain, (rows, grain) in product((0.0, 0.8), STRAINS, SHAPES):
        yield Case(dtype, heat, WIDTH, "perfect", 4, strain, ragged=rows, grain=grain)


def sample(dtype: str) -> list[Case]:
    return [
        Case(dtype, 0.0, WIDTH, "dflash", 4, ragged=14, grain=2),
        Case(dtype, 0.8, WIDTH, "perfect", 4, "hit", ragged=9, grain=1),
        Case(dtype, 0.8, WIDTH, "perfect", 4, "preempted", ragged=20, grain=4),
        Case(dtype, 0.0, WIDTH, "adversarial", 4, "moved", ragged=14, grain=2),
        Case(dtype, 0.8, WIDTH, "wire-dflash", 4, ragged=27, grain=1),
    ]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.whole)])
def test_chains_of_any_lengths_say_nothing_else_than_plain_decoding(dtype: str, full: bool) -> None:
    prompts = PROMPTS_OF_ALL if full else PROMPTS
    cases = list(every_case(dtype)) if full else sample(dtype)
    tally = run_gate(made_up_pair(), cases, lambda heat: specs_of(heat, prompts), SEED)
    assert tally.accepted > tally.tokens // 5
    assert (tally.mismatches, tally.failures) == (0, [])
    assert tally.excused <= (dtype == "float32") * len(cases) // 4


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("family", ["gemma3_text", "qwen3_moe"])
def test_windows_and_experts_see_what_plain_decoding_sees(family: str, full: bool) -> None:
    prompts = PROMPTS_OF_ALL if full else PROMPTS
    cases = [Case("float64", heat, WIDTH, "perfect", 4, ragged=14, grain=2) for heat in (0.0, 0.8)[: 1 + full]]
    tally = run_gate(made_up_pair(family=family), cases, lambda heat: specs_of(heat, prompts), SEED)
    assert (tally.mismatches, tally.failures) == (0, [])
    assert tally.accepted > tally.tokens // 10


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("heat", [0.0, pytest.param(0.8, marks=pytest.mark.whole)])
def test_texts_that_grammars_rule_are_those_of_plain_decoding(heat: float, full: bool) -> None:
    specs = ruled(heat, PROMPTS_OF_ALL if full else 4)
    cases = [Case("float64", heat, WIDTH, proposer, 4, ragged=14, grain=2) for proposer in ("perfect", "adversarial")]
    tally = run_gate(made_up_pair(), cases, lambda _: specs, SEED)
    assert (tally.mismatches, tally.failures) == (0, [])
    assert tally.accepted > tally.tokens // 10


@pytest.mark.parametrize("heat", [pytest.param(0.0, marks=pytest.mark.whole), 0.8])
def test_scores_of_tokens_are_those_of_plain_decoding(heat: float) -> None:
    specs = specs_of(heat, 8)[1::2]
    plain = run_case(made_up_pair(), Case("float64", heat, 1, "none", 1), specs, {}, SEED)
    truth = {spec.request_id: [*spec.token_ids, *done.tokens] for spec, done in zip(specs, plain, strict=True)}
    case = Case("float64", heat, WIDTH, "perfect", 4, ragged=14, grain=2)
    ragged = run_case(made_up_pair(), case, specs, truth, SEED)
    for one, other in zip(plain, ragged, strict=True):
        assert other.accepted > 8
        for alone, together in zip(one.logprobs, other.logprobs, strict=True):
            assert together.chosen == pytest.approx(alone.chosen, abs=1e-9)
            assert [token for token, _ in together.top] == [token for token, _ in alone.top]
