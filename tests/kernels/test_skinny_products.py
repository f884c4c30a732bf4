"""Products of few rows in CUDA C++: what is cut fits a multiprocessor, and where the programs in Triton stay."""

from __future__ import annotations

import pytest
import torch

from services.common.kernels.cuda_program import DriverError
from services.common.kernels.linear import kernel, skinny
from services.common.kernels.linear.skinny import Kind, SkinnyTiling, skinny_tiling
from services.common.kernels.linear.skinny.source import source_of
from services.common.kernels.linear.skinny.tiling import ROWS, SUB, skinny_cut

SHARED_BYTES, PROCESSORS = 232_448, 132
UNDER_WAY = 96 * 1024
"""Bytes that a multiprocessor must ask for at a time, or memory's answer is waited for."""
WEIGHTS = [
    (6144, 2560, Kind.PLAIN), (2560, 4096, Kind.ADDED), (19456, 2560, Kind.GATED), (2560, 9728, Kind.ADDED),
    (12352, 2560, Kind.PLAIN), (18432, 2560, Kind.GATED), (34816, 5120, Kind.GATED), (4096, 2560, Kind.GATES),
]  # fmt: skip


def cut(lines: int, depth: int, rows: int, kind: Kind) -> SkinnyTiling:
    found = skinny_cut(lines, depth, rows, kind)
    assert found is not None
    return found


@pytest.mark.parametrize(("lines", "depth", "kind"), WEIGHTS)
@pytest.mark.parametrize("rows", [1, 8, 9, 16, 31, 32])
def test_a_cut_fits_and_covers_every_line(lines: int, depth: int, kind: Kind, rows: int) -> None:
    own = cut(lines, depth, rows, kind)
    assert own.rows >= rows and own.rows in ROWS
    ctas, _ = own.grid(lines // 2 if kind == Kind.GATED else lines)
    assert ctas * own.lines >= lines > (ctas - 1) * own.lines
    assert depth % (own.subs * SUB) == 0
    assert own.shared_bytes <= SHARED_BYTES


@pytest.mark.parametrize(("lines", "depth", "kind"), WEIGHTS)
@pytest.mark.parametrize("rows", ROWS)
def test_memory_is_kept_busy(lines: int, depth: int, kind: Kind, rows: int) -> None:
    """CTAs of one wave are alone on theirs; of several waves two are there at a time."""
    own = cut(lines, depth, rows, kind)
    ctas, _ = own.grid(lines // 2 if kind == Kind.GATED else lines)
    assert ctas > 0.9 * PROCESSORS
    beside = SHARED_BYTES // own.shared_bytes
    assert beside == (1 if ctas <= PROCESSORS else 2)
    step_bytes = own.subs * (own.rows + own.lines) * SUB * 2
    assert beside * (own.stages - 1) * step_bytes >= UNDER_WAY


@pytest.mark.parametrize(
    ("lines", "depth", "rows", "kind"),
    [
        (2560, 4096, 33, Kind.ADDED),
        (151936, 2560, 1, Kind.PLAIN),
        (2560, 4100, 1, Kind.ADDED),
        (2562, 4096, 1, Kind.PLAIN),
        (24, 128, 1, Kind.GATED),
    ],
)
def test_other_products_go_elsewhere(lines: int, depth: int, rows: int, kind: Kind) -> None:
    assert skinny_cut(lines, depth, rows, kind) is None


def test_a_cpu_takes_none() -> None:
    x_TD, weight_FD = torch.zeros(4, 128, dtype=torch.bfloat16), torch.zeros(64, 128, dtype=torch.bfloat16)
    assert skinny_tiling(x_TD, weight_FD, Kind.PLAIN) is None


@pytest.mark.parametrize("kind", list(Kind))
def test_a_source_is_whole(kind: Kind) -> None:
    """The compiler of a serving process finds no headers, so none may be asked for."""
    source = source_of(cut(19456, 2560, 16, kind))
    assert "#include" not in source
    assert "m64n16k16" in source
    assert f"#define KIND {int(kind)}" in source
    assert source.count('extern "C" __global__') == 1


@pytest.mark.parametrize("error", [DriverError("product: no compiler"), ModuleNotFoundError("cupy")])
def test_without_a_compiler_triton_serves_and_the_log_says_so(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(_: SkinnyTiling) -> None:
        raise error

    monkeypatch.setattr(skinny, "program_of", refused)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    assert not skinny._usable.__wrapped__(torch.device("cuda"), cut(2560, 4096, 8, Kind.ADDED))
    assert str(error) in caplog.text


def test_only_the_measured_kind_of_gpu_compiles_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skinny, "program_of", lambda _: pytest.fail("nothing is compiled"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    assert not skinny._usable.__wrapped__(torch.device("cuda"), cut(2560, 4096, 16, Kind.ADDED))


def test_a_refused_product_does_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the check at start refused goes through the programs in Triton."""
    monkeypatch.setattr(kernel, "skinny_tiling", lambda *_: pytest.fail("it was refused"))
    monkeypatch.setattr(kernel, "allowed", lambda *_: False)
    x_TD, weight_FD = torch.ones(4, 128, dtype=torch.bfloat16), torch.ones(64, 128, dtype=torch.bfloat16)
    assert not kernel.is_skinny(x_TD, weight_FD)
