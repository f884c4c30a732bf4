"""What the bench of the rule times, and the entries that it saves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from services.common.kernels.linear import Normed, kernel, reference
from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.persistent.rule import fits, ruled_cut
from services.common.kernels.linear.persistent.tiling import PersistentTiling
from services.common.kernels.tables import Table, parsed, text_of
from tests.bench.gpu.products import ruled
from tests.bench.gpu.products.cases import layer_weights
from tests.bench.gpu.products.ruled import PRODUCTS, ROWS, cuts_of, entry_of
from tests.bench.gpu.shapes import QWEN3_8B, QWEN3_14B


class Product:
    """Stands for a product on a GPU."""

    lines, depth, kind, rows = 24_576, 4096, Kind.GATED, 128


def test_its_products_are_those_of_public_models() -> None:
    for shape in (QWEN3_8B, QWEN3_14B):
        named = {name: weight[:2] for name, weight in PRODUCTS[shape.hidden].items()}
        assert named == layer_weights(shape)


@pytest.mark.parametrize("rows", ROWS)
def test_the_rule_s_cut_comes_first_and_clusters_of_four_are_tried(rows: int) -> None:
    for products in PRODUCTS.values():
        for lines, depth, kind in products.values():
            found = cuts_of(lines, depth, kind, rows, 3)
            assert found[0] == ruled_cut(lines, depth, rows, kind)
            assert len(set(found)) == len(found) <= 5 and all(fits(cut, lines, depth) for cut in found)


def test_an_entry_is_what_a_table_holds() -> None:
    cut = PersistentTiling(128, 96, 1, 5, Kind.GATED, share=2, wide=True)
    found = [entry_of(Product(), each) for each in (cut, None)]  # type: ignore[arg-type]
    assert [entry.cut for entry in found] == [{"rows": 128, "band": 96, "subs": 1, "stages": 5, "share": 2}, None]
    assert parsed(text_of(Table("NVIDIA H200", tuple(found))), "own.json").entries == tuple(found)


class Clock:
    """Counts no time: what was captured first is the quickest."""

    def __init__(self) -> None:
        self.us = 0.0

    def captured(self, step: Callable[[], None]) -> Callable[[], None]:
        step()
        return step

    def hot(self, _: Callable[[], None], seconds: float) -> float:
        assert seconds < 1
        self.us += 1.0
        return self.us


def added(x_TD: Tensor, weight_FD: Tensor, stream_TF: Tensor, *_: object, **__: object) -> tuple[Normed, Tensor]:
    total_TF = stream_TF + x_TD @ weight_FD.T
    return Normed(total_TF, torch.ones(len(x_TD), dtype=torch.int64)), total_TF


def normed(x: Normed, weight_FD: Tensor, eps: float, cut: PersistentTiling) -> Tensor:
    by = reference.linear_gated if cut.kind == Kind.GATED else reference.linear_normed
    return by(x, weight_FD, eps)


@pytest.mark.parametrize("wrong", [False, True])
def test_bits_come_before_times_and_the_quickest_is_saved(
    wrong: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    products = {64: {"qkv": (128, 64, Kind.PLAIN), "o": (64, 128, Kind.ADDED), "gate_up": (256, 64, Kind.GATED)}}
    monkeypatch.setattr(ruled, "PRODUCTS", products)
    monkeypatch.setattr(ruled, "DEVICE", "cpu")
    monkeypatch.setattr(ruled, "_CYCLED_BYTES", 1)
    monkeypatch.setattr(ruled, "_CAPTURED_US", 1.0)
    monkeypatch.setattr(ruled, "GpuClock", Clock)
    monkeypatch.setattr(ruled, "compile_all", lambda _: None)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    for name, function in (("normed", reference.linear_normed), ("gated", reference.linear_gated), ("added", added)):
        monkeypatch.setattr(kernel, f"linear_{name}", function)
    monkeypatch.setattr(ruled, "cuda_normed", normed)
    monkeypatch.setattr(ruled, "cuda_added", added)
    if wrong:
        monkeypatch.setattr(ruled, "cuda_normed", lambda *given: normed(*given) + 1)
    code = ruled.main(["--rows", "96", "--hidden", "64", "--save", str(tmp_path / "own.json")])
    assert code == int(wrong)
    said = capsys.readouterr().out
    assert said.count("library ") == 3 and ("OTHER BITS" in said) == wrong
    found = parsed((tmp_path / "own.json").read_text(), "own.json").entries
    assert [(entry.kind, entry.cut) for entry in found] == [("plain", None), ("added", None), ("gated", None)]
