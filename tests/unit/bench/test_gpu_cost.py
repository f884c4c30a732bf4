"""The cost of exactness: the same code times two trees, and ratios of medians are judged by the bars of each step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from deploy.stack import REPOSITORY
from tests.bench.gpu.exact.cost import compose, ratio_row
from tests.bench.gpu.exact.report import conclude
from tests.bench.gpu.exact.step_times import CASES, ROOM, Case, prefix_blocks

CASE = Case("verify 8 x 16 at 512", 8, 16, 512, 1.03)


def run(us: float) -> dict[str, Any]:
    return {"us": us, "prefixes": 8}


def test_a_ratio_is_of_medians_and_tells_how_far_two_runs_of_a_side_are_apart() -> None:
    row = ratio_row(CASE, [("now", run(104.0)), ("before", run(100.0)), ("now", run(106.0)), ("before", run(98.0))])
    cost = row["cost"]
    assert (cost["us"], cost["before_us"], cost["ratio"]) == (105.0, 99.0, 1.0606)
    assert cost["spread"] == pytest.approx(100 / 98 - 1, abs=1e-4)


@pytest.mark.parametrize(("passed", "status"), [(True, 0), (False, 1)])
def test_a_ratio_over_its_bar_is_a_failure(passed: bool, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    row = ratio_row(CASE, [("now", run(104.0)), ("before", run(100.0))])
    assert conclude("cost", "tiny", [row], "", passed) == status
    assert "1.040 (bar 1.03)" in capsys.readouterr().out


def test_only_the_services_of_the_other_tree_are_timed(tmp_path: Path) -> None:
    (tmp_path / "old" / "services").mkdir(parents=True)
    tree = compose(tmp_path / "tree", tmp_path / "old")
    assert (tree / "services").resolve() == tmp_path / "old" / "services"
    assert (tree / "tests").resolve() == REPOSITORY / "tests"


@pytest.mark.parametrize("blocks", [10_000, 5_000])
def test_every_row_has_a_tail_of_its_own_and_a_prefix_that_half_of_the_rows_do_not_share(blocks: int) -> None:
    rows, context = 128, 520
    table = prefix_blocks(rows, context, min(blocks, 10_000), 16)
    whole, tail = context // 16, -(-(context % 16 + ROOM) // 16)
    assert table.shape == (rows, whole + tail)
    assert int(table.min()) >= 1
    assert int(table.max()) <= blocks
    assert len(table[:, whole:].unique()) == rows * tail
    distinct = len(table[:, 0].unique())
    assert len(table[:, :whole].unique()) == distinct * whole
    assert rows // 2 <= distinct <= rows
    assert (distinct == rows) == (blocks == 10_000)


def test_a_pool_that_is_too_small_is_refused() -> None:
    with pytest.raises(AssertionError, match="too few"):
        prefix_blocks(128, 4096, 5_000, 16)


def test_the_steps_and_bars_are_those_that_are_promised() -> None:
    assert [case.bar for case in CASES] == [1.04, 1.03, 1.03, 1.03, 1.03, 1.05, 1.05, 1.04, 1.03]
    assert torch.tensor([max(case.bucket * case.width, 1) for case in CASES]).max() == 512
