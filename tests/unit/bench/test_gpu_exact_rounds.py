"""Rounds of every kind say what plain rounds say, and the comparison sees a fault of each kind that it is there for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from services.common.kernels import prepare_span as prepare_rows
from services.common.kernels.span_attention import Span, plan_span
from services.common.model.states.states import Rows
from services.target.build_device import Worker
from tests.bench.gpu.exact.cover import pairwise
from tests.bench.gpu.exact.rounds import FLAGS, FULL, TINY, Comparison
from tests.bench.gpu.exact.rounds_rig import Cell, TrueDrafts, build

EVERYTHING = Cell(4, 4, 8, hit=True, preemption=True, ahead=True)


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    made = build(TINY.rig, Path(tmp_path_factory.mktemp("models")))
    yield made
    made.close()


@pytest.fixture(scope="module")
def comparison(worker: Worker) -> Comparison:
    return Comparison(worker, TINY)


@pytest.mark.parametrize("sizes", [(2, 2, 2), (4, 4, 2, 2, 2, 2), (3, 1, 5)])
def test_every_two_values_meet(sizes: tuple[int, ...]) -> None:
    factors = {f"f{index}": range(size) for index, size in enumerate(sizes)}
    cells = pairwise(factors)
    for one, other in combinations(factors, 2):
        met = {(cell[one], cell[other]) for cell in cells}
        assert met == set(product(factors[one], factors[other]))
    assert len(cells) <= 24
    assert pairwise(factors) == cells


def test_the_full_plan_is_as_large_as_promised() -> None:
    cells = FULL.cells
    assert len(cells) <= 24
    assert sum(FULL.loads[cell.requests] for cell in cells) >= 2000
    assert FULL.sizes.tokens == 256
    assert FULL.sizes.longest + FULL.rig.widths[-1] <= FULL.rig.context_limit
    for name, values in {"width": {1, 4, 8, 16}, "requests": {1, 8, 32, 128}, "chunk": {256, 2048}}.items():
        assert {getattr(cell, name) for cell in cells} == values
    for name in FLAGS:
        on = sum(getattr(cell, name) for cell in cells)
        assert len(cells) / 3 <= on <= 2 * len(cells) / 3


def test_a_cell_of_everything_says_what_plain_rounds_say(comparison: Comparison) -> None:
    row = comparison.cell(EVERYTHING, 6)
    assert row["exact"]["differ"] == 0
    assert 0 < row["accepted"] < row["drafted"]


def test_a_cell_that_never_drafts_shows_nothing(comparison: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrueDrafts, "draft", lambda drafts, plan: None)
    row = comparison.cell(Cell(4, 4, 32), 6)
    assert (row["exact"]["streams"], row["exact"]["differ"], row["void"]) == (0, 0, "accepted")


def test_texts_of_misplaced_keys_differ(comparison: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a wide span are written one place too far."""

    def misplaced(table_BN: Tensor, lengths_B: Tensor, width: int, block_size: int, **more: Any) -> Span:
        span = plan_span(table_BN, lengths_B, width, block_size, **more)
        shifted = plan_span(table_BN, lengths_B + 1, width, block_size, **more)
        return span if width == 1 else replace(span, slots_T=shifted.slots_T)

    monkeypatch.setattr(prepare_rows, "plan_span", misplaced)
    row = comparison.cell(Cell(4, 4, 32), 6)
    assert row["exact"]["differ"] > 0
    assert 0 < row["earliest"] < TINY.sizes.tokens


def test_keys_that_a_chunk_rounds_differ(comparison: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    true_forward = type(comparison.worker.runner.pool.model).forward

    def rounded(model: object, ids_T: Tensor, rows: Rows, states: object, taps: object = ()) -> tuple[Tensor, Tensor]:
        out: tuple[Tensor, Tensor] = true_forward(model, ids_T, rows, states, taps)  # type: ignore[arg-type]
        valid_B = rows.parts[0].valid_B
        if valid_B is not None and int(valid_B.max()) == 8:
            for kv in states.tensors:  # type: ignore[attr-defined]
                kv.copy_(kv.float())
        return out

    before = {row["exact"]["what"]: row["exact"]["differ"] for row in comparison.kv_rows()}
    assert set(before.values()) == {0}
    monkeypatch.setattr(type(comparison.worker.runner.pool.model), "forward", rounded)
    after = {row["exact"]["what"]: row["exact"]["differ"] for row in comparison.kv_rows()}
    assert after["K/V of plain rounds and of prefill in chunks of 8"] > 0


def test_cells_of_the_tiny_plan_differ_in_nothing(comparison: Comparison, full: bool) -> None:
    """With --full every cell, in float64; else the last one."""
    for cell in TINY.cells if full else TINY.cells[-1:]:
        assert comparison.cell(cell, TINY.loads[cell.requests])["exact"]["differ"] == 0
