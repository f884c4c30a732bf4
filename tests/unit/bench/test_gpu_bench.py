"""What the GPU benchmark's figures rest on: pinned widths, switched schedules, steady parts, intervals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from services.target.scheduling.width.width import adaptive_policy
from tests.bench.gpu.floors import against_products, explain
from tests.bench.gpu.load import Arrival, Load, Run, frames_of
from tests.bench.gpu.medians import interval
from tests.bench.gpu.pinned import PinnedWidth, Schedule
from tests.bench.gpu.results import Results
from tests.bench.gpu.shapes import PROFILES, SHAPES, VLLM, expected_tokens, rates_of
from tests.support.session_client import Received

WIDTHS, BUCKETS = (1, 4, 8, 16), (1, 2)
MICROS = {(bucket, width): 100.0 + width for bucket in BUCKETS for width in WIDTHS}


@pytest.fixture
def schedule(tmp_path: Path) -> Schedule:
    (tmp_path / "schedule").write_text(json.dumps("vllm"))
    return Schedule(tmp_path / "schedule")


@pytest.fixture
def policy(schedule: Schedule) -> PinnedWidth:
    return PinnedWidth(adaptive_policy(WIDTHS, BUCKETS, MICROS), schedule)


@pytest.mark.parametrize(("cap", "width"), [(0, 1), (3, 4), (7, 8), (15, 16)])
def test_a_longest_draft_pins_the_width(policy: PinnedWidth, cap: int, width: int) -> None:
    policy.join(1, cap)
    assert {policy.choose(1, 1) for _ in range(50)} == {width}


def test_pinned_rounds_teach_nothing(policy: PinnedWidth) -> None:
    before = policy.costs.table()
    policy.join(1, 15)
    for _ in range(50):
        width = policy.choose(1, 1)
        policy.observe(1, 15, 0, False)
        policy.landed(1, width, 1, 9_000.0)
    policy.leave(1)
    assert policy.costs.table() == before
    policy.join(2, None)
    for _ in range(2):  # the first of its kind tells no policy anything
        policy.landed(1, policy.choose(1, 1), 1, 9_000.0)
    assert policy.costs.table() != before


def test_what_a_plain_round_would_take_is_what_was_measured(policy: PinnedWidth) -> None:
    """The scheduler asks for it in every speculative round. The first of its kind tells nothing."""
    policy.join(1, None)
    wide = policy.choose(1, 1)
    for width in (1, 1, wide, wide):
        policy.landed(1, width, 1, 101.0)
    assert wide > 1 and [policy.plain_micros(bucket) for bucket in BUCKETS] == [101.0, 0.0]


def test_a_schedule_is_switched_when_a_request_begins(policy: PinnedWidth, schedule: Schedule, tmp_path: Path) -> None:
    steps = {width: schedule.make(VLLM[16], width, 1, torch.device("cpu")) for width in (4, 16)}
    for name in ("vllm", "P13", "K7"):
        (tmp_path / "schedule").write_text(json.dumps(name))
        policy.join(1, 3)
        policy.leave(1)
        for width, step in steps.items():
            rates = [*rates_of(name, width), *[0.0] * width][: width - 1]
            assert step.rates == pytest.approx(rates)


def test_rounds_of_one_width_are_explained_and_other_rows_left_alone() -> None:
    steps = [{"step": "read", "tb_s": 4.0}, {"step": "plain", "bucket": 1, "context": 512, "width": 1, "us": 90.0}]
    load: dict[str, Any] = {"concurrency": 1, "context": 512}
    rows = [load | {"k": 0, "round_us": 100.0}, load | {"k": None, "round_us": 100.0}, load | {"k": 15, "through": 1}]
    explained = explain(rows, steps, SHAPES["tiny"])
    assert explained[0]["handoff_us"] == 10.0
    assert explained[0]["floor_us"] > 0.0
    assert explained[1:] == rows[1:]


def test_verifies_are_compared_with_the_products_of_as_many_rows() -> None:
    verify = {"step": "verify", "bucket": 8, "context": 512, "width": 16, "us": 3700.0}
    read = {"step": "read", "tb_s": 4.6}
    steps = [read, verify, verify | {"width": 8}, {"step": "products", "bucket": 128, "us": 2900.0}]
    rows = against_products(steps, SHAPES["qwen3-4b"])
    assert [(row["bucket"], row["width"]) for row in rows] == [(8, 16)]
    assert rows[0]["kv_us"] == pytest.approx(8 * 512 * 147_456 / 4.6e12 * 1e6, abs=0.1)
    assert rows[0]["ratio"] == pytest.approx(3700 / (2900 + rows[0]["kv_us"]), abs=1e-3)


def test_expected_tokens_end_at_the_width() -> None:
    assert expected_tokens(PROFILES["P30"], 1) == 1.0
    assert expected_tokens(PROFILES["P30"], 4) == pytest.approx(1 + 0.62 + 0.45 + 0.32)
    assert expected_tokens(PROFILES["P13"], 16) == expected_tokens(PROFILES["P13"], 4)


def test_the_steady_part_has_every_stream_and_no_end() -> None:
    rounds = [
        Arrival(1.0, 1, {"a": 1}, frozenset()),
        Arrival(2.0, 2, {"a": 3, "b": 1}, frozenset()),
        Arrival(3.0, 3, {"a": 2, "b": 2}, frozenset()),
        Arrival(4.0, 4, {"a": 2, "b": 2}, frozenset("a")),
        Arrival(5.0, 5, {"b": 2}, frozenset("b")),
    ]
    assert [arrival.number for arrival in Run(5.0, [Received(), Received()], rounds).steady()] == [2, 3]


def test_an_interval_encloses_the_median_with_nine_tenths() -> None:
    found = interval([float(value) for value in range(1, 9)])
    assert found == {"median": 4.5, "low": 2.0, "high": 7.0, "coverage": 0.93}
    assert interval([1.0, 3.0]) == {"median": 2.0, "low": 1.0, "high": 3.0, "coverage": 0.5}


def test_every_row_tells_how_the_gpu_was_shared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = Results(str(tmp_path), "tiny")
    with pytest.raises(ValueError, match="gpu_sharing is missing"):
        results.add("vllm", [{"k": 7, "gpu_sharing": "mps"}, {"k": 15}])
    results.add("vllm", [{"k": 7, "gpu_sharing": "mps", "handoff_mode": "flags_mps"}])
    results.show()
    assert capsys.readouterr().out.startswith("k=7  gpu_sharing=mps  handoff_mode=flags_mps\n")
    assert json.loads((tmp_path / "gpu_vllm.json").read_text())["rows"][0]["gpu_sharing"] == "mps"


def test_runs_that_draw_anew_find_the_same_prompts() -> None:
    first, again = (frames_of(Load(2, 8, 4, salt="one", draws=draws), vocab=50) for draws in (0, 1))
    assert [frame.token_ids for frame in first] == [frame.token_ids for frame in again]
    assert not {frame.sampling.seed for frame in first} & {frame.sampling.seed for frame in again}
