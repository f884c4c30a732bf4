"""The measurement of keys and values in eight bits: it runs, and the embedded model hardly notices."""

import json
from pathlib import Path

import pytest

from tests.bench.kv_quality import main

ROOT = Path(__file__).parents[3]


def test_the_embedded_model_keeps_its_perplexity(capsys: pytest.CaptureFixture[str]) -> None:
    text, model = ROOT / "services/target/scheduling/scheduler.py", ROOT / "models/embedded/target"
    assert main([str(text), "--model", str(model), "--window", "128", "--windows", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tokens"] == 256
    assert found["wide"] != found["eight_bits"], "the codes were read"
    assert 0.99 < found["ratio"] < 1.01
    assert found["same"] > 0.97
