"""Rows and weights of eight bits: text is the same with drafts and without, in any company, moved, found or preempted.

In float32 no difference is excused: sums of whole numbers and of groups of codes are exact, and attention behind them
adds in float64.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.lossless.gate import Case, make_specs, run_gate
from tests.lossless.pairs import Pair
from tests.support.packed_checkpoints import LAYOUTS, pack_checkpoint
from tests.support.tiny_checkpoints import TinyShape, write_tiny

SEED = 20267
HEATS = (0.0, 0.8)
STRAINS = ("preempted", "moved", "hit")
FILES = {
    "int8": ("ct-int8", TinyShape(layers=3, taps=(0, 2))),
    "fp8": ("fp8-bf16", TinyShape(hidden=128, inner=128, layers=2, heads=2, kv_heads=2, head_dim=64, taps=(0, 1))),
}
"""By what rows are rounded to: a layout of packed weights, and a shape that has such."""
SAMPLE = [Case("float32", 0.0, 8, "perfect", 4), Case("float32", 0.8, 4, "dflash", 4, "moved")]
REST = [
    Case(dtype, heat, width, proposer, 4, strain, coded)
    for dtype in ("float32", "float64")
    for heat in HEATS
    for coded in (False, True)
    for width, proposer, strain in (
        (8, "dflash", ""),
        (4, "adversarial", ""),
        *((8, "perfect", one) for one in STRAINS),
    )
]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("activations", FILES)
def test_text_is_the_same_with_drafts_and_without(activations: str, full: bool, tmp_path: Path) -> None:
    prompts, tokens = (12, 48) if full else (2, 16)
    layout, shape = FILES[activations]
    made = write_tiny(tmp_path, 3, shape, std=0.1, dtype=torch.bfloat16)
    pack_checkpoint(made.target, tmp_path / "twin", LAYOUTS[layout])
    specs = {heat: make_specs(320, prompts, tokens, heat, SEED) for heat in HEATS}
    cases = [replace(case, activations=activations) for case in SAMPLE + (REST if full else [])]
    tally = run_gate(Pair(made.target, made.drafter), cases, specs.__getitem__, SEED)
    assert tally.tokens == tally.cases * prompts * tokens
    assert tally.accepted > tally.tokens // 8
    assert (tally.mismatches, tally.excused, tally.failures) == (0, 0, [])
