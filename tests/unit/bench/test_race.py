"""README's table of the race against vLLM is the saved result, and the result agrees with itself."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.bench import pages
from tests.bench.race import RESULTS, latencies, newest, newest_rows, table

ROOT = Path(__file__).resolve().parents[3]
KEYS = {
    "system", "go", "profile", "prompt", "out", "concurrency", "mode", "k", "decode_tok_s", "whole_tok_s", "prompts_s",
    "tau", "accepted_by_position", "ttft_ms", "itl_ms", "itl_beside_prompts_ms", "clock_mhz", "watts", "all",
    "drafter_weights", "short_blocks",
}  # fmt: skip
LATER = {"drafter_weights", "short_blocks", "itl_beside_prompts_ms"}
"""Not in the rows of the first races."""
FAIR = {"system": "paceline", "go": "1", "profile": "P65", "out": 128, "concurrency": 8, "mode": "adaptive", "k": None}
FIGURES = {"decode_tok_s": 200, "whole_tok_s": 100, "prompts_s": 0.5}


@pytest.fixture(scope="module")
def races() -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in newest()]


@pytest.mark.parametrize("name", pages.PAGES)
def test_a_page_shows_the_saved_results_to_the_figure(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "<!-- table: " in text
    assert pages.filled(text) == text, "make pictures writes the tables"


def test_readme_names_the_newest_race_and_its_plot() -> None:
    readme, newest_race = (ROOT / "README.md").read_text(), pages.fronts_file().name
    assert set(re.findall(r"tests/bench/results/(fronts_\S+?\.json)", readme)) == {newest_race}
    assert f"({pages.PLOT.relative_to(ROOT)})" in readme
    assert newest_race.encode() in pages.PLOT.read_bytes(), "make pictures draws the newest race"


def test_performance_names_the_races_of_its_table() -> None:
    page = (ROOT / "docs/performance.md").read_text()
    assert set(re.findall(r"tests/bench/results/(race_\S+?\.json)", page)) == {file.name for file in newest()}


def test_a_load_that_the_latest_race_lacks_is_shown_from_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.bench.race.RESULTS", tmp_path)
    loads = {
        "01-01_a": ["16"], "01-02_a": ["1", "8"], "01-03_a": ["8"], "01-03_b": ["32"], "01-04_a": ["32"],
        "01-04_c": ["32", "64"],
    }  # fmt: skip
    for name, goes in loads.items():
        rows = [FAIR | {"go": go, "concurrency": int(go), "decode_tok_s": int(name[4])} for go in goes]
        (tmp_path / f"race_2026-{name}.json").write_text(json.dumps({"rows": rows}))
    assert [file.stem[-7:] for file in newest()] == ["01-02_a", "01-03_a", "01-04_c"], "the first date is too long ago"
    assert {row["go"]: row["decode_tok_s"] for row in newest_rows()} == {"1": 2, "8": 3, "32": 4, "64": 4}
    for name in list(loads)[:5]:
        (tmp_path / f"race_2026-{name}.json").unlink()
    assert {row["go"] for row in newest_rows()} == {"32", "64"}


def test_the_race_that_ended_last_is_the_latest_of_its_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.bench.race.RESULTS", tmp_path)
    ends = {"b_commit": ["10:00", "16:00"], "c_commit": ["15:00"], "then_d_commit": []}
    for name, times in ends.items():
        groups = {str(index): {"ended": f"2026-01-01T{time}:00+00:00"} for index, time in enumerate(times)}
        result = {"groups": groups, "rows": [FAIR | {"decode_tok_s": len(name)}]}
        (tmp_path / f"race_2026-01-01_{name}.json").write_text(json.dumps(result))
    assert [file.stem for file in newest()] == ["race_2026-01-01_b_commit"]
    assert [row["decode_tok_s"] for row in newest_rows()] == [len("b_commit")]


@pytest.mark.parametrize("page", ["README.md", "docs/performance.md"])
def test_no_sentence_compares_with_vllm(page: str) -> None:
    assert not re.search(r"times\s+(what\s+)?vLLM", (ROOT / page).read_text())


def test_every_row_has_the_whole_form(races: list[dict[str, Any]]) -> None:
    for race in races:
        assert race["bench"] == "race" and {"device", "commit", "versions", "command"} <= race.keys()
        assert all(row.keys() | LATER == KEYS for row in race["rows"])


def test_rows_of_a_load_are_of_one_file(races: list[dict[str, Any]]) -> None:
    shown = newest_rows()
    for go in {row["go"] for row in shown}:
        rows = [row for row in shown if row["go"] == go]
        assert any(all(row in race["rows"] for row in rows) for race in races), go


def test_whole_load_decode_and_prompts_are_one_measurement() -> None:
    """decode = (tokens - requests) / (whole - prompts); figures are medians, rounded, so 2 % is allowed."""
    complete = [row for row in newest_rows() if None not in (row["decode_tok_s"], row["whole_tok_s"], row["prompts_s"])]
    assert len(complete) >= 12
    for row in complete:
        tokens = row["out"] * row["concurrency"]
        decode = (tokens - row["concurrency"]) / (tokens / row["whole_tok_s"] - row["prompts_s"])
        assert row["decode_tok_s"] == pytest.approx(decode, rel=0.02), row


def test_a_side_that_is_behind_is_shown_behind() -> None:
    ours = FAIR | FIGURES
    theirs = ours | {"system": "vllm", "mode": "fixed", "k": 7, "decode_tok_s": 100, "whole_tok_s": 125}
    line = table([theirs, ours]).splitlines()[-1]
    assert line.endswith("| 2.00 | **0.80** |")


def test_no_ratio_between_machines() -> None:
    ours = FAIR | FIGURES
    lines = table([ours, ours | {"system": "vllm", "go": "2"}]).splitlines()[2:]
    assert [line.endswith("| - | - |") for line in lines] == [True, True]


def test_the_best_of_each_figure_is_taken_and_its_setting_named() -> None:
    theirs = FAIR | FIGURES | {"system": "vllm", "mode": "fixed", "k": 7}
    other = theirs | {"k": 15, "decode_tok_s": 150, "whole_tok_s": 120, "prompts_s": 0.25}
    assert "| 200 (K=7) | 120 (K=15) | 0.250 |" in table([theirs, other])


def test_times_of_tokens_stand_beside_each_setting() -> None:
    times = {"ttft_ms": {"p50": 10.5, "p99": 1200.0}, "itl_ms": {"p99": None}, "itl_beside_prompts_ms": {"p99": 31.5}}
    row = FAIR | FIGURES | times | {"drafter_weights": "int8", "k": None}
    line = latencies([row]).splitlines()[-1]
    assert line == "| 1 | paceline | adaptive, int8 | 10.5 | 1,200.0 | - | 31.5 | 100 | 0.5 |"
    line = latencies([row | {"short_blocks": True}]).splitlines()[-1]
    assert line == "| 1 | paceline | adaptive, int8, short blocks | 10.5 | 1,200.0 | - | 31.5 | 100 | 0.5 |"


def test_few_results_are_kept() -> None:
    assert len(list(RESULTS.iterdir())) <= 12, "a result that a page shows no more is found in the history"


def test_rows_of_another_shape_stand_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.bench.race.RESULTS", tmp_path)
    rows = [FAIR | {"decode_tok_s": 1}, FAIR | {"decode_tok_s": 2, "shape": "qwen3-8b"}]
    (tmp_path / "race_2026-01-01.json").write_text(json.dumps({"rows": rows}))
    assert [row["decode_tok_s"] for row in newest_rows()] == [1]
    assert [row["decode_tok_s"] for row in newest_rows("qwen3-8b")] == [2]
    assert newest("qwen3-14b") == []
