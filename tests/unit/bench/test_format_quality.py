"""The measurement of packed formats: it runs, and a tiny model means to its oracle what it means to us."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.bench.gpu.shapes import TINY
from tests.support.tiny_checkpoints import write_tiny


@pytest.mark.parametrize(
    "name", ["ct-int4", *(pytest.param(name, marks=pytest.mark.whole) for name in ("bfloat16", "fp8", "fp8-rows"))]
)
def test_a_tiny_model_has_its_oracles_perplexity(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.bench.format_quality import BOUND, told

    hidden = 192 if name == "fp8-rows" else 128
    shape = replace(TINY, hidden=hidden, inner=256, layers=1, heads=4, kv_heads=2, head_dim=32, taps=(0,))
    folder = write_tiny(tmp_path, 3, shape, family="qwen3", std=0.3, dtype=torch.bfloat16).target
    windows = [torch.arange(3, 35).remainder(shape.vocab)]
    apart = told(name, folder, windows)
    found = json.loads(capsys.readouterr().out)
    assert apart < BOUND and found["tokens"] == 31 and found["format"] == name
