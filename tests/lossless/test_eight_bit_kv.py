"""Keys and values in eight bits: text is the same with drafts and without, in any company, moved, found or preempted.

In float32 too no difference is excused: attention by codes adds in float64, and other sums follow no number of rows
where float16 holds the weights.
"""

from pathlib import Path

import pytest
import torch

from tests.lossless.gate import Case, make_specs, run_gate
from tests.lossless.pairs import Pair
from tests.support.tiny_checkpoints import HYBRIDS, TinyShape, write_tiny

SEED = 20266
HEATS = (0.0, 0.8)
FAMILIES = ("gemma3_text", "qwen3_5", "llama", "qwen2", "qwen3_next", "qwen3_moe")
STRAINED = [Case("float32", 0.8, 4, "perfect", 4, strain, coded=True) for strain in ("preempted", "moved", "hit")]
SAMPLE = [
    Case("float32", 0.0, 8, "dflash", 4, coded=True),
    Case("float32", 0.8, 8, "nodes-scattered", 4, coded=True),
    *STRAINED,
]
REST = [
    Case(dtype, heat, width, proposer, batch, coded=True)
    for dtype in ("float32", "float64")
    for heat in HEATS
    for width in (4, 8)
    for proposer in ("dflash", "ngram", "adversarial", "perfect", "wire-dflash", "nodes-dflash")
    for batch in (1, 4)
]


def made(folder: Path, family: str = "qwen3") -> Pair:
    """A pair whose weights bfloat16 holds, as those of real checkpoints."""
    shape = TinyShape(block_size=16) if family in HYBRIDS else TinyShape(layers=3, taps=(0, 2))
    found = write_tiny(folder, 3, shape, family=family, std=0.1, dtype=torch.bfloat16)
    return Pair(found.target, found.drafter)


@pytest.mark.timeout(3600)
def test_text_is_the_same_with_drafts_and_without(full: bool, tmp_path: Path) -> None:
    prompts, tokens = (12, 48) if full else (2, 16)
    specs = {heat: make_specs(320, prompts, tokens, heat, SEED) for heat in HEATS}
    tally = run_gate(made(tmp_path), SAMPLE + (REST if full else []), specs.__getitem__, SEED)
    assert tally.tokens == tally.cases * prompts * tokens
    assert tally.accepted > tally.tokens // 4
    assert tally.cached > 0
    assert (tally.mismatches, tally.excused, tally.failures) == (0, 0, [])


@pytest.mark.timeout(3600)
def test_text_of_other_families_is_the_same(full: bool, tmp_path: Path) -> None:
    """In float64: recurrent layers and experts add by number of rows in float32."""
    specs = {heat: make_specs(320, 12 if full else 1, 40 if full else 16, heat, SEED) for heat in HEATS}
    cases = [Case("float64", heat, 8, "perfect", 4, strain, coded=True) for heat in HEATS for strain in ("", "hit")]
    for family in FAMILIES if full else FAMILIES[:1]:
        tally = run_gate(made(tmp_path / family, family), cases if full else cases[:1], specs.__getitem__, SEED)
        assert tally.accepted > tally.tokens // 4
        assert (tally.mismatches, tally.failures) == (0, [])
