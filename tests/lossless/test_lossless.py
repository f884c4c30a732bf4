"""A sample of the lossless gate (I1); `make test-lossless` runs every case on 100 prompts."""

from itertools import product

import pytest

from services.target.core.request import RequestSpec
from tests.lossless.gate import FAMILIES, FAMILY_PROPOSERS, PROPOSERS, Case, Tally, hybrid_arms, make_specs, run_gate
from tests.lossless.oracle import Oracle
from tests.lossless.pairs import made_up_pair
from tests.lossless.rig import Done

SEED = 20261
PROMPTS, PROMPTS_OF_ALL = 2, 100


def specs_of(temperature: float, prompts: int = PROMPTS) -> list[RequestSpec]:
    return make_specs(320, prompts, 64, temperature, SEED)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_no_case_says_anything_else_than_plain_decoding(dtype: str, full: bool) -> None:
    prompts = PROMPTS_OF_ALL if full else PROMPTS
    shapes, other = ((4, 1), (8, 4), (8, 1), (4, 4)), dtype == "float32"
    cases = [Case(dtype, temperature, 1, "none", 4) for temperature in (0.0, 0.8)]
    for index, (temperature, proposer) in enumerate(product((0.0, 0.8), PROPOSERS)):
        width, batch = shapes[(index + index // 4) % 4]
        cases.append(Case(dtype, temperature, width, proposer, batch))
    if not full:  # Each proposer once, and with both data types at both temperatures.
        count = len(PROPOSERS)
        kept = [index for index in range(2 * count) if (index % count + index // count + other) % 2 == 0]
        cases = cases[:2] + [cases[2 + index] for index in kept]
    tally = run_gate(made_up_pair(), cases, lambda temperature: specs_of(temperature, prompts), SEED)
    assert tally.cases == len(cases)
    assert tally.tokens == len(cases) * prompts * 64
    assert tally.accepted > tally.tokens // 5
    assert (tally.mismatches, tally.failures) == (0, [])
    assert tally.excused <= (dtype == "float32")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "family", [pytest.param(one, marks=[pytest.mark.whole] * (one == "llama")) for one in FAMILIES]
)
def test_other_families_say_nothing_else_than_plain_decoding(family: str, full: bool) -> None:
    """In float64 by default, which excuses nothing; float32 is held above for one family."""
    prompts = PROMPTS_OF_ALL if full else PROMPTS
    for dtype, (proposer, least) in product(
        ("float64", "float32") if full else ("float64",), zip(FAMILY_PROPOSERS, (0.01, 0.5), strict=True)
    ):
        cases = [Case(dtype, temperature, width, proposer, 4) for temperature, width in ((0.0, 8), (0.8, 4))]
        tally = run_gate(made_up_pair(family=family), cases, lambda temperature: specs_of(temperature, prompts), SEED)
        assert tally.tokens == len(cases) * prompts * 64
        assert tally.accepted > least * tally.tokens
        assert (tally.mismatches, tally.failures) == (0, [])
        assert tally.excused <= (dtype == "float32")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.whole)])
def test_hybrids_say_nothing_else_than_plain_decoding(dtype: str, full: bool) -> None:
    """At every width, with every proposer, beside neighbours, preempted, moved to another target, after a hit."""
    prompts = PROMPTS_OF_ALL if full else 2
    sample = [
        Case(dtype, 0.0, 16, "dflash", 4, "hit"),
        Case(dtype, 0.8, 8, "ngram", 1),
        Case(dtype, 0.0, 4, "adversarial", 4, "preempted"),
        Case(dtype, 0.8, 16, "perfect", 4, "moved"),
    ]
    every = [case for heat in (0.0, 0.8) for case in hybrid_arms("qwen3_5", dtype, heat)]
    cases = every if full else sample
    tally = run_gate(made_up_pair(family="qwen3_5"), cases, lambda heat: specs_of(heat, prompts), SEED)
    assert tally.tokens == len(cases) * prompts * 64
    assert tally.accepted > tally.tokens // 5
    assert (tally.mismatches, tally.failures) == (0, [])
    assert tally.excused <= (dtype == "float32") * len(cases) // 4
    assert tally.cached > 16 * prompts


def test_only_near_ties_of_the_two_best_are_excused() -> None:
    oracle = Oracle(made_up_pair().target)
    spec = specs_of(0.8)[0]
    scores_V = oracle.scores(spec.token_ids, spec)
    first, second = scores_V.topk(2).indices.tolist()
    assert not oracle.excuses(spec, [first], [second])
    assert not oracle.excuses(spec, [first], [first])
    tied_V = scores_V.clone()
    tied_V[second] = tied_V[first] - 1e-6
    oracle.scores = lambda prefix, spec: tied_V  # type: ignore[method-assign]
    assert oracle.excuses(spec, [first], [second])
    assert not oracle.excuses(spec, [first], [(first + 1) % 320 if (first + 1) % 320 != second else (first + 2) % 320])


def test_a_request_that_stops_early_is_a_mismatch() -> None:
    tally, spec = Tally(), specs_of(0.0)[0]
    oracle = Oracle(made_up_pair().target)
    tally.add(Case("float32", 0.0, 4, "ngram", 1), spec, Done([1, 2, 3]), Done([1, 2]), oracle)
    assert (tally.mismatches, tally.excused) == (1, 0)
