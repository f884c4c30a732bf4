"""Packed weights: speculation on and off give the same text, which is that of the twin saved in bfloat16."""

from pathlib import Path

import pytest

from tests.lossless.gate import Case, make_specs, run_case, run_gate
from tests.lossless.pairs import Pair
from tests.support.packed_checkpoints import LAYOUTS, pack_checkpoint
from tests.support.tiny_checkpoints import TinyShape, write_tiny

SEED = 20261
SAMPLE = ("fp8-bf16", "gptq-ordered")
REST = tuple(layout for layout in LAYOUTS if layout not in SAMPLE)
HEATS = (0.0, 0.8)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("layout", SAMPLE)
def test_text_is_that_of_the_twin_with_drafts_and_without(layout: str, full: bool, tmp_path: Path) -> None:
    compare(layout, 30 if full else 1, tmp_path)


@pytest.mark.whole
@pytest.mark.timeout(3600)
def test_text_of_other_layouts_is_that_of_the_twin(tmp_path: Path) -> None:
    for layout in REST:
        compare(layout, 30, tmp_path / layout)


def compare(layout: str, prompts: int, folder: Path) -> None:
    """Run requests with drafts and without, and without on the twin."""
    made, twin = write_tiny(folder, 3, TinyShape(layers=2, taps=(0, 1))), folder / "twin"
    pack_checkpoint(made.target, twin, LAYOUTS[layout])
    packed, plain = Pair(made.target, made.drafter), Pair(twin, made.drafter)
    specs = {heat: make_specs(320, prompts, 48, heat, SEED) for heat in HEATS}
    cases = [Case("float64", 0.0, 8, "dflash", 4), Case("float64", 0.8, 4, "perfect", 1)]
    tally = run_gate(packed, cases, specs.__getitem__, SEED)
    assert tally.tokens == len(cases) * prompts * 48
    assert tally.accepted > tally.tokens // 8
    assert (tally.mismatches, tally.failures) == (0, [])
    for heat in HEATS:
        case = Case("float32", heat, 1, "none", 4)
        ours, theirs = (run_case(pair, case, specs[heat], {}, SEED) for pair in (packed, plain))
        assert [done.tokens for done in ours] == [done.tokens for done in theirs]
