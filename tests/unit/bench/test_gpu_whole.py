"""How cuts of products are ranked by whole verifies: in turn with the tables', and what then serves."""

from __future__ import annotations

import json
import sys
from collections.abc import Hashable
from pathlib import Path

import pytest

from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.persistent.rule import fits
from services.common.kernels.linear.persistent.tiling import PersistentTiling
from services.common.kernels.linear.persistent.wide import MEASURED, wide_cut
from tests.bench.gpu.kernels_added import Ran, added, places
from tests.bench.gpu.products import whole
from tests.bench.gpu.products.cases import Case
from tests.bench.gpu.products.choices import Cut, choices_of, serving
from tests.bench.gpu.products.wide import wide_tilings

GATES, DOWN = Case("gate_up", 19456, 2560, 512), Case("down", 2560, 9728, 512)
TILING = PersistentTiling(256, 96, 1, 4, Kind.GATED, wide=True)


def test_a_clock_that_slows_down_favours_nobody() -> None:
    true_us = {"tables": 100.0, "quicker": 98.0, "slower": 103.0, "other": 100.0, "another": 101.0, "last": 99.0}
    calls: list[Hashable] = []

    def micros(name: Hashable) -> float:
        calls.append(name)
        return true_us[str(name)] * (1 + 0.001 * len(calls))

    ratios = whole.ratios_of(list(true_us), "tables", micros, turns=3)
    assert ratios == pytest.approx({name: us / 100 for name, us in true_us.items()}, abs=0.0025)
    assert calls.count("quicker") == 3


def test_each_product_s_best_is_taken_where_it_gains_enough() -> None:
    plan: whole.Plan = {whole.TABLES: {}, "a": {GATES: TILING}, "b": {GATES: None}, "c": {DOWN: None}}
    ratios = {whole.TABLES: [1.001, 0.999], "a": [0.99, 0.98], "b": [0.99, 0.991], "c": [0.998, 0.999]}
    assert whole.best_of(plan, ratios) == {GATES: TILING}


def test_a_choice_serves_its_row_count_alone_and_for_a_while() -> None:
    before = {key: dict(cuts) for key, cuts in MEASURED.items()}
    least = wide_cut(19456, 2560, 511, Kind.GATED)
    with serving({GATES: TILING, DOWN: None}):
        assert wide_cut(19456, 2560, 512, Kind.GATED) == TILING
        assert wide_cut(19456, 2560, 511, Kind.GATED) == least
        assert wide_cut(2560, 9728, 512, Kind.ADDED) is None
    assert before == MEASURED


def test_what_goes_by_no_tiling_goes_through_the_library() -> None:
    some = Case("gate_up", 19456, 2560, 256)
    assert wide_cut(*some.product, Kind.GATED) is not None
    with serving({some: None}):
        assert wide_cut(*some.product, Kind.GATED) is None
        assert wide_cut(2560, 9728, 128, Kind.ADDED) is not None
    assert wide_cut(*some.product, Kind.GATED) is not None


def test_tables_come_back_after_an_error() -> None:
    before = {key: dict(cuts) for key, cuts in MEASURED.items()}
    with pytest.raises(RuntimeError, match="refused"), serving({GATES: TILING}):
        raise RuntimeError("refused")
    assert before == MEASURED


def test_choices_are_the_library_and_the_listed_tilings_by_names_of_their_own() -> None:
    found: dict[str, Cut] = choices_of(GATES)
    assert list(found.values()) == [None, *wide_tilings("gate_up", 512)]
    assert "gate_up: 256 x 76, gated, 2 share lines" in found


def test_the_command_compares_bits_and_saves_its_ratios(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = "2x4 2p32 --products o --captures 1 --turns 1 --replays 1 --shape tiny --device cpu --dtype float32"
    monkeypatch.setattr(sys, "argv", ["whole", *arguments.split(), "--memory-gb", "0.5", "--save", str(tmp_path)])
    assert whole.main() == 0
    (file,) = tmp_path.glob("gpu_cpu_products_*_whole.json")
    saved = json.loads(file.read_text())
    assert (saved["bench"], [(row["step"], row["differ"]) for row in saved["steps"]]) == (
        "products", [("2x4", []), ("2p32", [])]
    )  # fmt: skip
    assert all({whole.TABLES, "o: 64 x 40, added"} < set(row["ratios"]) for row in saved["steps"])
    out = capsys.readouterr().out
    assert "2x4: " in out
    assert "2p32: " in out


def test_weights_of_4096_have_candidates_of_their_own_that_fill_whole_waves() -> None:
    gates = Case("gate_up", 24_576, 4096, 512)
    assert (gates.hidden, Case("down", 4096, 12_288, 512).hidden) == (4096, 4096)
    found = [cut for cut in choices_of(gates).values() if cut is not None]
    assert not set(found) & set(wide_tilings("gate_up", 512))
    for cut in found:
        assert fits(cut, *gates.product[:2]), cut
        tiles, ctas = cut.tiles(512, 12_288) * cut.cluster, cut.grid(512, 12_288, 132)[0]
        assert tiles / ctas / -(-tiles // ctas) > 0.96, cut


def test_kernels_are_told_by_their_place_in_a_layer() -> None:
    names = ["begin", *["product", "attend", "product"] * 2, "product"]
    ran = [Ran(name, float(number), number + 1 + 0.5 * (number == 3)) for number, name in enumerate(names)]
    assert [" ".join(line.split()) for line in places(added(ran), layers=2)] == [
        "2.5 us, 2 x 1.25 2 of 2 product",
        "2.0 us, 2 x 1.00 1 of 1 attend",
        "1.5 us, 2 x 0.75 1 of 2 product",
        "1.0 us, 1 x 1.00 beside begin",
        "1.0 us, 1 x 1.00 beside product",
    ]
