"""The gate of products in clusters: what tilings cover and move, how a worker that fails is survived, what decides."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import pytest

from services.common.kernels.cuda import wgmma
from tests.bench.gpu.clusters import report
from tests.bench.gpu.clusters.build import command
from tests.bench.gpu.clusters.overseer import Overseer
from tests.bench.gpu.clusters.tiling import ROWS, TILINGS, WEIGHTS, Tiling

EVERY = [(shape, tiling) for shape in TILINGS for tiling in TILINGS[shape]]


@pytest.mark.parametrize(("shape", "tiling"), EVERY, ids=str)
def test_a_tiling_fits_and_covers_every_output_once(shape: str, tiling: Tiling) -> None:
    outputs, depth = WEIGHTS[shape]
    assert tiling.fits(outputs, depth)
    across, row_parts = tiling.grid(outputs)
    assert across % tiling.cluster == 0
    # As the kernel places them: the rank in the cluster tells lines first, then rows.
    tiles = {
        (block // tiling.cluster * tiling.share_x + block % tiling.cluster % tiling.share_x,
         block % tiling.cluster // tiling.share_x if tiling.share_w > 1 else part)
        for block, part in product(range(across), range(row_parts))
    }  # fmt: skip
    assert len(tiles) == tiling.ctas(outputs)
    assert tiles >= set(product(range(math.ceil(outputs / tiling.lines)), range(ROWS // tiling.rows)))


def test_a_tiling_that_is_too_large_or_uneven_does_not_fit() -> None:
    assert not Tiling(128, 152, 1, 7, 4).fits(19456, 2560)
    assert not Tiling(128, 16, 1, 8, 4).fits(2560, 4096)
    assert not Tiling(64, 40, 4, 4, 4, 2).fits(2560, 4096 + 64)
    assert not Tiling(64, 40, 1, 8, 1, 2).fits(2560, 4096)
    assert not Tiling(64, 40, 2, 8, 16, 1).fits(2560, 4096)


def test_a_cluster_saves_the_cache_and_not_the_multiprocessor() -> None:
    alone, shared = Tiling(64, 40, 2, 8), Tiling(64, 40, 2, 8, 4, 2)
    assert alone.ingest_bytes(9728) == shared.ingest_bytes(9728) == 2 * 9728 * 104
    assert alone.cache_bytes(2560, 9728) == 128 * 2 * 9728 * 104
    assert shared.cache_bytes(2560, 9728) == 128 * 2 * 9728 * (16 + 20)


def test_the_build_names_every_part_of_a_tiling() -> None:
    words = command(Tiling(64, 40, 2, 8, 4, 2), Path("/nowhere"))
    assert [word for word in words if word.startswith("-D")] == [
        "-DROWS=64", "-DLINES=40", "-DSUBS=2", "-DSTAGES=8", "-DSHARE_X=4", "-DSHARE_W=2",
    ]  # fmt: skip
    assert "m64n40k16" in wgmma("mma", 40, registers=False) and "%19}, %20, %21, p" in wgmma("mma", 40, registers=False)


def said(*lines: dict[str, object], then: str = "") -> list[str]:
    """A worker's command that says these lines, then does something."""
    text = "\n".join(json.dumps(line) for line in lines)
    return [sys.executable, "-S", "-c", f"import sys, time; print({text!r}, flush=True); {then}"]


def test_a_tiling_that_hangs_or_ends_its_worker_is_named_and_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    equal: dict[str, object] = {"shape": "o", "tiling": "good", "status": "equal"}
    times: dict[str, object] = {"times": "o", "micros": []}
    workers = [
        said({"ready": "GPU"}, {"begin": "o/hanging"}, then="time.sleep(60)"),
        said({"begin": "o/fatal"}, then="sys.exit(7)"),
        said({"begin": "o/good"}, equal, {"begin": "o/times"}, times),
    ]
    asked: list[list[str]] = []

    def start(words: list[str]) -> subprocess.Popen[str]:
        asked.append(words)
        return subprocess.Popen(workers[len(asked) - 1], stdout=subprocess.PIPE, text=True)

    overseer = Overseer(Path("built"), time.monotonic() + 60, start, silent=0.1)
    overseer.run(["o"], [])
    assert overseer.candidates["o", "hanging"]["status"] == "hangs at o/hanging"
    assert overseer.candidates["o", "fatal"]["status"].startswith("error: the worker ended with 7")
    assert overseer.candidates["o", "good"] == equal and overseer.times == {"o": times}
    assert asked[-1] == ["built", "--shapes", "o", "--skip", "o/hanging", "o/fatal"]
    assert "hangs" in capsys.readouterr().out


def test_the_gate_adds_the_best_of_each_mode() -> None:
    checked, times = {}, {}
    for shape, alone, overlapped in (("o", 9.0, 8.0), ("down", 18.0, 16.5), ("gate_up", 27.5, 26.9)):
        first, second = TILINGS[shape][0].name, TILINGS[shape][1].name
        checked[shape, first] = {"status": "equal"}
        times[shape] = {"micros": [
            {"tiling": "cuBLAS", "overlapped": False, "us": 20.0},
            {"tiling": first, "overlapped": False, "us": alone}, {"tiling": first, "overlapped": True, "us": 99.0},
            {"tiling": second, "overlapped": False, "us": 99.0},
            {"tiling": second, "overlapped": True, "us": overlapped},
        ]}  # fmt: skip
    rows = report.rows_of(TILINGS, checked, times)
    sums = {(one["products"], one["mode"]): (one["us"], one["cublas_us"], one["passes"]) for one in report.gate(rows)}
    assert sums == {
        ("o + down", "alone"): (27.0, 40.0, False), ("o + down", "overlapped"): (24.5, 40.0, True),
        ("gate_up", "alone"): (27.5, 20.0, False), ("gate_up", "overlapped"): (26.9, 20.0, True),
    }  # fmt: skip
    assert rows[-1]["best"] == {} and "not run" in {one["status"] for one in rows[-1]["tilings"]}
    assert report.table(rows).splitlines()[-1].endswith("passes")
