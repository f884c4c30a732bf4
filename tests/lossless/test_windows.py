"""Sliding windows: past them the text is that of plain decoding, whoever shares a round, with whatever drafts (I1)."""

from collections.abc import Callable

import pytest

from tests.lossless.gate import OTHER_FAMILIES, STRAINS, Case, make_specs, run_gate
from tests.lossless.pairs import made_up_pair

SEED, TOKENS = 20262, 40
FAMILIES = {
    "gemma3_text": ("dflash", "ngram", "perfect", "adversarial"),
    "gemma4_text": ("dflash", "ngram", "perfect", "adversarial"),
    "laguna": ("dflash", "ngram", "perfect", "adversarial"),
}
WIDTHS = (4, 8)


def every_case(family: str) -> list[Case]:
    cases: list[Case] = []
    for heat in (0.0, 0.8):
        cases += [Case("float64", heat, width, proposer, 4) for width in WIDTHS for proposer in FAMILIES[family]]
        cases += [Case("float64", heat, 8, "perfect", 1), Case("float64", heat, 1, "none", 4)]
        cases += [Case("float64", heat, width, "perfect", 4, strain) for width in WIDTHS for strain in STRAINS]
        cases += [Case("float64", heat, 4, "adversarial", 4, strain) for strain in STRAINS]
        cases += [Case("float64", heat, 1, "none", 4, strain) for strain in STRAINS]
    return cases


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "family", [pytest.param(one, marks=[pytest.mark.whole] * (one == "gemma3_text")) for one in FAMILIES]
)
def test_windows_say_nothing_else_than_plain_decoding(
    family: str, full: bool, report_counts: Callable[[str, int], None]
) -> None:
    """At every width, with every proposer, beside neighbours, preempted, moved to another target, after a hit.

    Windows hold 24 tokens, prompts 4 to 80, and each gets 40 more: many a draft is rejected at a window's edge.
    """
    prompts, cases = (60, every_case(family)) if full else (2, list(OTHER_FAMILIES))
    specs = {heat: make_specs(320, prompts, TOKENS, heat, SEED) for heat in (0.0, 0.8)}
    tally = run_gate(made_up_pair(family=family), cases, specs.__getitem__, SEED)
    report_counts("tokens_compared", tally.tokens)
    assert tally.tokens == len(cases) * prompts * TOKENS
    assert tally.accepted > tally.tokens // (10 if full else 5)  # all cases include plain ones
    assert (tally.mismatches, tally.failures) == (0, [])
    assert tally.cached > 16 * prompts
