"""A whole race on a CPU: a real pair of a tiny model, and a made-up vLLM."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.bench.gpu import pair
from tests.bench.gpu.race import __main__ as race
from tests.bench.gpu.race import loop, ours, plan, theirs
from tests.support.warm import WarmProcess
from tests.unit.bench.fake_vllm import write_fake_vllm
from tests.unit.bench.test_race import KEYS


@pytest.mark.whole
def test_a_tiny_race_runs_both_sides_and_saves_every_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    write_fake_vllm(tmp_path)
    monkeypatch.setattr(pair, "ServiceProcess", WarmProcess)
    monkeypatch.setattr(plan, "CLOSED", (2,))
    monkeypatch.setattr(plan, "_MOST_REPEATS", plan.REPEATS)
    for side in (loop, ours):
        monkeypatch.setattr(side, "PROMPT", 64)
    for side in (loop, theirs):
        monkeypatch.setattr(side, "LEAD_S", 0.2)
    group = ["--group", "2", "--drafts", "7", "--tiny", "--once", "--vllm", str(tmp_path), "--save", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["race", *group])
    begun = datetime.now(UTC).replace(microsecond=0)
    assert race.main() == 0
    (file,) = tmp_path.glob("*race_*.json")
    saved = json.loads(file.read_text())
    assert begun <= datetime.fromisoformat(saved["groups"]["2"]["ended"]) <= datetime.now(UTC)
    assert {row["system"] for row in saved["rows"]} == {"paceline", "vllm-0.99"}
    assert {(row["out"], row["mode"]) for row in saved["rows"] if row["system"] == "paceline"} == {
        (out, mode) for out in (24, 12) for mode in ("adaptive", "fixed", "plain")
    }
    loops = {row["system"]: row for row in saved["closed"]}
    assert loops.keys() == {"paceline", "vllm-0.99"}
    for row in (*saved["rows"], *saved["closed"]):
        assert row.keys() == KEYS | {"shape"}
        assert row["whole_tok_s"] > 0 and row["ttft_ms"]["p99"] > 0
    shown = capfd.readouterr().out
    assert "| closed-P65-24-2 | paceline | adaptive |" in shown
