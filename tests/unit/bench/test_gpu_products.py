"""How algorithms are ranked: bits first, then load, then the pause; and what enters the table."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from deploy.stack import EMBEDDED
from services.common.kernels.linear.algorithms import ALGORITHMS, Algorithms, algorithms_of
from services.common.kernels.linear.cublaslt.algorithm import Algorithm
from services.common.kernels.linear.cublaslt.binding import CublasLtError, Library
from services.common.kernels.linear.cublaslt.problem import Candidate
from services.common.kernels.linear.ranked import Ranked
from services.common.kernels.tables import Entry, Table, name_of, parsed, tables, text_of
from services.common.model.families import read_target_spec
from services.target.device.exact.shape import PREFILL, every_shape
from services.target.device.shapes import RunnerSettings, buckets_of, packs_of
from tests.bench.gpu.products import __main__ as command
from tests.bench.gpu.products import subject
from tests.bench.gpu.products.cases import Case, cases, context_weights, layer_weights
from tests.bench.gpu.products.contest import Contest, Effort
from tests.bench.gpu.products.table_file import RESULTS, merged, ranked_before, saved, write
from tests.bench.gpu.shapes import SHAPES
from tests.support.fake_cublaslt import FakeLt

GPU, VERSION = "NVIDIA H200", 130100
LAUNCHES = 4
WIDTHS = (1, 4, 6, 8, 12, 16)
OWN_ROWS = 64


def numbered(number: int) -> Algorithm:
    return Algorithm((number, *(0,) * 7))


class Replay:
    def __init__(self, who: int) -> None:
        self.who = who

    def replay(self) -> None:
        raise AssertionError("the clock of this test knows the times")


class Game:
    """Subject and clock: microseconds of a product by an algorithm's number, hot and cold; 0 is torch."""

    launches = LAUNCHES

    def __init__(
        self, hot: dict[int, float], cold: dict[int, float] | None = None, wrong: dict[int, str] | None = None
    ) -> None:
        self.hot_us, self.cold_us, self.why = hot, cold or hot, wrong or {}
        self.proposed = [number for number in {**hot, **self.why} if 0 < number < 10]

    def candidates(self) -> list[Candidate]:
        return [Candidate(numbered(number), 0) for number in self.proposed]

    def variants(self, algorithm: Algorithm) -> Iterable[Candidate]:
        varied = algorithm.words[0] * 10
        return [Candidate(algorithm, 0), *([Candidate(numbered(varied), 0)] if varied in self.hot_us else [])]

    def wrong(self, candidate: Candidate) -> str:
        return self.why.get(candidate.algorithm.words[0], "")

    def step(self, algorithm: Algorithm | None) -> Any:
        return algorithm.words[0] if algorithm else 0

    def described(self, algorithm: Algorithm) -> dict[str, int]:
        return {"id": algorithm.words[0]}

    def captured(self, step: Any) -> Replay:
        return Replay(step)

    def hot(self, replay: Any, seconds: float) -> float:
        return self.hot_us[replay.who] * LAUNCHES

    def cold(self, replay: Any, pause: float) -> float:
        return self.cold_us[replay.who] * LAUNCHES


def ranked(game: Game) -> dict[str, Any]:
    return Contest(game, game, Effort()).row()


def test_the_quickest_under_load_enters_with_a_gain_of_two_percent() -> None:
    row = ranked(Game({0: 102.5, 1: 104.0, 2: 100.0, 3: 101.0}))
    assert (row["torch_us"], row["best_us"], row["gain"], row["enters"]) == (102.5, 100.0, 1.025, True)
    assert row["options"] == {"id": 2}
    assert not ranked(Game({0: 101.5, 1: 100.0}))["enters"]


def test_other_bits_are_dropped_and_counted_however_quick() -> None:
    row = ranked(Game({0: 100.0, 1: 90.0, 2: 10.0}, wrong={2: "cancelling", 3: "workspace", 4: "cancelling"}))
    assert row["options"] == {"id": 1}
    assert row["dropped"] == {"cancelling": 2, "workspace": 1}
    assert row["exact"] == 1


def test_what_is_slower_behind_a_pause_does_not_enter() -> None:
    row = ranked(Game({0: 100.0, 1: 90.0, 2: 95.0}, cold={0: 80.0, 1: 81.0, 2: 79.0}))
    assert row["options"] == {"id": 2}


def test_options_of_the_quickest_are_varied() -> None:
    row = ranked(Game({0: 100.0, 1: 90.0, 2: 95.0, 20: 85.0}))
    assert row["options"] == {"id": 20}
    assert row["exact"] == 3


def test_without_an_exact_algorithm_torch_s_product_stays() -> None:
    row = ranked(Game({0: 100.0}, wrong={1: "random"}))
    assert row["gain"] == 1.0
    assert "enters" not in row


def test_rows_that_were_measured_again_replace_those_before_and_failures_nothing() -> None:
    known = {(GPU, VERSION): {(8, 16, 128): "a", (8, 16, 256): "b"}, ("other", 1): {(1, 1, 128): "c"}}
    rows = [
        {"outputs": 8, "depth": 16, "rows": 128, "enters": False, "algorithm": "x"},
        {"outputs": 8, "depth": 16, "rows": 512, "enters": True, "algorithm": "y"},
        {"outputs": 8, "depth": 16, "rows": 256, "error": "failed"},
    ]
    now = merged(known, GPU, VERSION, rows)
    assert now == {(GPU, VERSION): {(8, 16, 256): "b", (8, 16, 512): "y"}, ("other", 1): {(1, 1, 128): "c"}}


def test_the_table_that_is_written_says_what_was_found(tmp_path: Path) -> None:
    known = {(GPU, VERSION): {(2560, 4096, 128): str(numbered(66)), (6144, 2560, 64): str(numbered(7))}}
    write(known, tmp_path)
    assert algorithms_of(dict(tables(tmp_path))) == known
    path = tmp_path / f"{name_of(GPU)}.json"
    own = Entry("tiles", 64, 128, "plain", "bf16", 96, None)
    path.write_text(text_of(Table(GPU, (own,))))
    write(known, tmp_path)
    assert parsed(path.read_text(), path.name).entries[0] == own


def test_every_weight_of_qwen3_4b_is_ranked_layers_first() -> None:
    every = list(cases(SHAPES["qwen3-4b"]))
    assert [case.product[:2] for case in every[:4]] == [(6144, 2560), (2560, 4096), (19456, 2560), (2560, 9728)]
    assert {case.product for case in every} >= {(151936, 2560, 128), (2560, 12800, 8192), (10240, 2560, 512)}
    assert len({case.product for case in every}) == len(every)
    assert 7 <= next(case.least_us for case in every if case.product == (6144, 2560, 128)) <= 9


@pytest.mark.parametrize(("slots", "packed"), [(8, 2048), (16, 2048), (32, 2048), (64, 3840), (128, 4096)])
def test_whatever_a_target_captures_of_many_rows_is_ranked(slots: int, packed: int) -> None:
    """Packs are as large as `pack_tokens` of that many slots."""
    shape = SHAPES["qwen3-4b"]
    ranked_ones = {case.product for case in cases(shape)}
    packs = packs_of(packed, read_target_spec(EMBEDDED / "target"), torch.device("cuda"))
    captured = every_shape(RunnerSettings(slots, 64, 64, widths=WIDTHS, buckets=buckets_of(slots), packs=packs))
    weights = {**layer_weights(shape), **context_weights(shape)}.values()
    for one in captured:
        if one.rows > OWN_ROWS:
            assert {(*weight, one.rows) for weight in weights} <= ranked_ones, one
            assert one.kind == PREFILL or (shape.vocab, shape.hidden, one.rows) in ranked_ones, one


def test_the_table_holds_what_was_measured() -> None:
    table: Algorithms = {}
    for document in saved(RESULTS):
        table = merged(table, document["device"], document["cublaslt"], document["rows"])
    assert table == ALGORITHMS
    assert ALGORITHMS[GPU, VERSION]


def test_what_was_ranked_before_is_known_by_gpu_and_version(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"outputs": 8, "depth": 16, "rows": 128},
        {"outputs": 8, "depth": 16, "rows": 256, "error": "failed"},
    ]
    for day, gpu, version in (("1", GPU, VERSION), ("2", "other", VERSION), ("3", GPU, VERSION + 1)):
        document = {"device": gpu, "cublaslt": version, "rows": rows if day == "1" else [{**rows[0], "rows": 512}]}
        (tmp_path / f"gpu_h200_products_{day}.json").write_text(json.dumps(document))
    assert ranked_before(tmp_path, GPU, VERSION) == {(8, 16, 128)}


def test_products_that_were_ranked_are_not_ranked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(new: bool = False, only: str = "", rows: list[int] | None = None) -> set[tuple[int, int, int]]:
        arguments = argparse.Namespace(new=new, only=only, rows=rows)
        return {case.product for case in command._chosen(arguments, VERSION)}

    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: GPU)
    known = ranked_before(RESULTS, GPU, VERSION)
    assert known
    assert chosen(new=True) == chosen() - known
    assert chosen(only="down", rows=[96]) == {(2560, 9728, 96)}


def in_order(x_TD: Tensor, weight_FD: Tensor, parts: int = 1) -> Tensor:
    """The product with the depth summed in so many parts, each in order; it is rounded to bfloat16 once."""
    total_TF = torch.zeros((len(x_TD), len(weight_FD)))
    for x_TP, weight_FP in zip(x_TD.float().chunk(parts, 1), weight_FD.float().chunk(parts, 1), strict=True):
        part_TF = torch.zeros_like(total_TF)
        for column in range(x_TP.shape[1]):
            part_TF += x_TP[:, column, None] * weight_FP[None, :, column]
        total_TF += part_TF
    return total_TF.bfloat16()


@pytest.mark.parametrize(("parts", "why"), [(1, ""), (4, "cancelling")])
def test_operands_that_cancel_show_a_split_that_rounding_hides(
    parts: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(3)
    monkeypatch.setattr(subject, "keep_order", lambda: None)
    monkeypatch.setattr(subject, "_by_torch", lambda x, weight, out: out.copy_(in_order(x, weight)))
    monkeypatch.setattr(Ranked, "multiply", lambda _, x, weight, out: out.copy_(in_order(x, weight, parts)))
    monkeypatch.setattr(subject, "CYCLED_BYTES", 1)
    found = subject.Subject(Library(FakeLt()), Case("o", 8, 96, 8), "cpu").wrong(Candidate(numbered(1), 0))
    assert found == why


@pytest.mark.parametrize("failing", [False, True])
def test_the_command_keeps_what_it_found(
    failing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    game, made = Game({0: 100.0, 1: 90.0}), []

    def subject_of(library: Library, case: Case) -> Game:
        made.append(case)
        if failing and len(made) > 1:
            raise CublasLtError("cublasLtMatmul", 13, "CUBLAS_STATUS_EXECUTION_FAILED")
        return game

    monkeypatch.setattr(command, "ALGORITHMS", {})
    monkeypatch.setattr(command, "loaded_library", lambda: Library(FakeLt()))
    monkeypatch.setattr(command, "Subject", subject_of)
    monkeypatch.setattr(command, "GpuClock", lambda: game)
    monkeypatch.setattr(command, "Meter", lambda: contextlib.nullcontext(Silent()))
    monkeypatch.setattr(command, "sound", lambda _: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: GPU)
    where = ["--save", str(tmp_path), "--tables", str(tmp_path / "tables")]
    monkeypatch.setattr(sys, "argv", ["products", *where, "--only", "draft_kv", "--rows", "128", "256"])
    assert command.main() == int(failing)
    table = algorithms_of(dict(tables(tmp_path / "tables")))
    assert table[GPU, VERSION][10240, 2560, 128] == str(numbered(1))
    assert ((10240, 2560, 256) in table[GPU, VERSION]) != failing
    (document,) = (json.loads(path.read_text()) for path in tmp_path.glob("gpu_h200_products_*.json"))
    assert (document["cublaslt"], document["rows"][0]["gain"]) == (VERSION, 1.1111)
    assert ("EXECUTION_FAILED" in capsys.readouterr().out) == failing


class Silent:
    samples = ()
