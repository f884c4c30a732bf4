"""The plans of the hybrid's GPU bench fit their limits, and its tables say when something is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from services.common.model.families import read_target_spec
from services.common.model.weights.weights import elements, model_shapes
from tests.bench.gpu.exact.rounds import Plan
from tests.bench.gpu.hybrid import large, rounds
from tests.bench.gpu.hybrid.table import save
from tests.support.tiny_checkpoints import write_configs


@pytest.mark.parametrize("plan", [rounds.FULL, large.FULL, rounds.TINY])
def test_requests_of_a_plan_fit_its_limit(plan: Plan, tmp_path: Path) -> None:
    rig = plan.rig
    assert plan.sizes.longest + rig.widths[-1] <= rig.context_limit
    assert plan.kv_tokens + 8 + rig.widths[-1] <= rig.context_limit
    spec = read_target_spec(write_configs(tmp_path, rig.shape, rig.family, rig.changes).target)
    assert spec.delta is not None
    assert spec.max_positions >= rig.context_limit


def test_shapes_are_the_published_ones(tmp_path: Path) -> None:
    """Numbers of text models that are published: 4.21 and 26.9 billion."""
    for plan, numbers in ((rounds.FULL, 4_205_751_296), (large.FULL, 26_895_998_464)):
        folder = write_configs(tmp_path, plan.rig.shape, plan.rig.family, plan.rig.changes).target
        assert elements(model_shapes(read_target_spec(folder))) == numbers


@pytest.mark.parametrize(
    ("rows", "code"), [([{"step": "a", "ratio": 1.0}], 0), ([{"step": "a", "wrong": True}], 1), ([], 1)]
)
def test_a_table_says_by_its_status_when_something_is_wrong(
    rows: list[dict[str, object]], code: int, tmp_path: Path
) -> None:
    assert save("stage", "shape", rows, str(tmp_path)) == code
    files = list(tmp_path.glob("gpu_stage_*.json"))
    assert [json.loads(file.read_text())["rows"] for file in files] == ([rows] if rows else [])


def test_texts_of_a_tiny_hybrid_are_compared_in_every_kind_of_cell(full: bool) -> None:
    """With --full all cells; else the first of them."""
    found = rounds.round_rows(tiny=True, exact="fallback")
    told = list(found) if full else [next(found)]
    assert all(row["exact"]["differ"] == 0 and row["exact"]["streams"] > 0 for row in told)
