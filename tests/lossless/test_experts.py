"""Mixtures of experts: the text is that of plain decoding, whoever shares a round and with whatever drafts (I1)."""

import pytest

from tests.lossless.gate import OTHER_FAMILIES, STRAINS, Case, arms, make_specs, run_gate
from tests.lossless.pairs import made_up_pair

SEED = 20261
FAMILIES = {"qwen3_moe": ("dflash", "ngram", "perfect", "adversarial"), "qwen3_5_moe": ("dflash", "perfect")}
WIDTHS = (4, 8)


def every_case(family: str) -> list[Case]:
    cases: list[Case] = []
    for heat in (0.0, 0.8):
        cases += arms("float64", heat, FAMILIES[family], WIDTHS)
        cases += [Case("float64", heat, width, "perfect", 4, strain) for width in WIDTHS for strain in STRAINS]
        cases += [Case("float64", heat, 1, "none", 4, strain) for strain in STRAINS]
    return cases


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "family", [pytest.param(one, marks=[pytest.mark.whole] * (one == "qwen3_moe")) for one in FAMILIES]
)
def test_experts_say_nothing_else_than_plain_decoding(family: str, full: bool) -> None:
    """At every width, with every proposer, beside neighbours, preempted, moved to another target, after a hit."""
    prompts, cases = (100, every_case(family)) if full else (2, list(OTHER_FAMILIES))
    specs = {heat: make_specs(320, prompts, 64, heat, SEED) for heat in (0.0, 0.8)}
    tally = run_gate(made_up_pair(family=family), cases, specs.__getitem__, SEED)
    assert tally.tokens == len(cases) * prompts * 64
    assert tally.accepted > tally.tokens // (10 if full else 5)  # all cases include plain ones
    assert (tally.mismatches, tally.failures) == (0, [])
    assert tally.cached > 16 * prompts
