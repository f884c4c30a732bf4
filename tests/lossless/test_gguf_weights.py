"""GGUF files: speculation on and off give the same text, which is that of the twin saved in bfloat16."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from services.common.model.families import read_target_spec
from services.common.model.files.checkpoint import SINGLE_FILE, resolve_folder
from services.common.model.files.formats import open_checkpoint
from services.common.model.files.manifest import write_manifest
from services.common.model.weights.weights import model_shapes
from tests.lossless.gate import Case, make_specs, run_case, run_gate
from tests.lossless.pairs import Pair
from tests.support.tiny_checkpoints import TinyShape, write_tiny
from tests.support.tiny_gguf import Type, write_gguf

SEED = 20263
SAMPLE = (Type.Q4_K,)
REST = (
    Type.Q8_0,
    Type.F16,
    Type.BF16,
    Type.Q4_0,
    Type.Q4_1,
    Type.Q5_0,
    Type.Q5_1,
    Type.Q2_K,
    Type.Q3_K,
    Type.Q5_K,
    Type.Q6_K,
)
WIDE = TinyShape(hidden=256, inner=256, heads=8, kv_heads=4, head_dim=32, layers=2, taps=(0, 1))


@pytest.mark.timeout(3600)
def test_text_is_that_of_the_twin_with_drafts_and_without(
    full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for kind in SAMPLE + (REST if full else ()):
        compare(kind, 20 if full else 1, tmp_path / kind.name)


def compare(kind: Type, prompts: int, folder: Path) -> None:
    """Run requests with drafts and without, and without on the twin."""
    made, path = write_tiny(folder, 3, WIDE, family="llama", std=0.1, dtype=torch.bfloat16), folder / "model.gguf"
    write_gguf(path, made.target, kind)
    described = resolve_folder(path)
    source, shapes = open_checkpoint(described), model_shapes(read_target_spec(described))
    save_file({name: source.read(name, shape, torch.bfloat16) for name, shape in shapes.items()},
              made.target / SINGLE_FILE)  # fmt: skip
    write_manifest(made.target)
    served, twin = Pair(described, made.drafter), Pair(made.target, made.drafter)
    specs = {heat: make_specs(320, prompts, 32, heat, SEED) for heat in (0.0, 0.8)}
    cases = [Case("float64", 0.0, 8, "dflash", 4), Case("float64", 0.8, 4, "perfect", 1)]
    tally = run_gate(served, cases, specs.__getitem__, SEED)
    assert tally.tokens == len(cases) * prompts * 32
    assert (tally.mismatches, tally.failures) == (0, [])
    for heat in (0.0, 0.8):
        case = Case("float32", heat, 1, "none", 4)
        ours, theirs = (run_case(pair, case, specs[heat], {}, SEED) for pair in (served, twin))
        assert [done.tokens for done in ours] == [done.tokens for done in theirs]
