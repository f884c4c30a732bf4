"""Own products of some hundred rows: what is cut fits a multiprocessor, and where the library stays."""

from __future__ import annotations

import pytest
import torch

from services.common.kernels.cuda_program import DriverError
from services.common.kernels.linear import fused, kernel, reference
from services.common.kernels.linear.fused import fused_tiling
from services.common.kernels.linear.fused.source import source_of
from services.common.kernels.linear.fused.tiling import SUB, FusedTiling, every_tiling, fused_cut

SHARED_BYTES, PROCESSORS, REGISTERS, WARP = 232_448, 132, 65_536, 32
OUT, DOWN, GATE_UP = (2560, 4096), (2560, 9728), (19456, 2560)


@pytest.mark.parametrize("weight", [OUT, DOWN, GATE_UP])
@pytest.mark.parametrize("rows", [128, 256])
def test_a_cut_fills_the_gpu_in_one_wave_and_fits_each_part_of_it(weight: tuple[int, int], rows: int) -> None:
    lines, depth = weight
    cut = fused_cut(lines, depth, rows)
    if cut is None:
        assert rows == 256
        return
    outputs = lines // 2 if cut.gated else lines
    across, down = cut.grid(rows, outputs)
    assert 0.9 * PROCESSORS < across * down <= PROCESSORS
    assert across // cut.share * cut.band >= outputs
    assert down * cut.share * cut.rows >= rows
    assert depth % (cut.subs * SUB) == 0
    assert cut.shared_bytes <= SHARED_BYTES
    # A thread holds half as many sums as lines; a quarter of a multiprocessor has a quarter of warps and registers.
    parts = -(-cut.threads // (4 * WARP))
    assert cut.lines // 2 + 24 <= REGISTERS // 4 // WARP // parts


@pytest.mark.parametrize("rows", [64, 65, 96, 108, 129, 192, 257, 512, 2048])
def test_rows_that_would_leave_much_of_a_tile_empty_go_through_the_library(rows: int) -> None:
    assert all(fused_cut(*weight, rows) is None for weight in (OUT, DOWN, GATE_UP))


def test_other_weights_go_through_the_library() -> None:
    assert fused_cut(2560, 2560, 128) is None
    x_TD, weight_FD = torch.zeros(128, 4096, dtype=torch.bfloat16), torch.zeros(OUT, dtype=torch.bfloat16)
    assert fused_tiling(x_TD, weight_FD) is None, "on a CPU"


@pytest.mark.parametrize("tiling", every_tiling())
def test_a_source_is_whole(tiling: FusedTiling) -> None:
    """The compiler of a serving process finds no headers, so none may be asked for."""
    source = source_of(tiling)
    assert "#include" not in source
    assert f"m64n{tiling.lines}k16" in source
    assert source.count('extern "C" __global__') == 1


@pytest.mark.parametrize("error", [DriverError("product: no compiler"), ModuleNotFoundError("cupy")])
def test_without_a_compiler_the_library_serves_and_the_log_says_so(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(_: FusedTiling) -> None:
        raise error

    monkeypatch.setattr(fused, "program_of", refused)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    assert not fused._usable.__wrapped__(torch.device("cuda"))
    assert str(error) in caplog.text


def test_only_the_measured_kind_of_gpu_compiles_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "program_of", lambda _: pytest.fail("nothing is compiled"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    assert not fused._usable.__wrapped__(torch.device("cuda"))


def test_a_refused_product_does_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the check at start refused goes through the programs in Triton, 64 rows at a time."""
    monkeypatch.setattr(kernel, "fused_tiling", lambda *_: pytest.fail("it was refused"))
    monkeypatch.setattr(kernel, "allowed", lambda *_: False)
    monkeypatch.setattr(kernel, "_product", reference.linear)
    monkeypatch.setattr(kernel, "begin_norm", lambda product_TF, *_: product_TF)
    x_TD, weight_FD = torch.ones(128, 16, dtype=torch.bfloat16), torch.ones(8, 16, dtype=torch.bfloat16)
    stream_TF = torch.zeros(128, 8, dtype=torch.bfloat16)
    product_TF, _ = kernel.linear_added(x_TD, weight_FD, stream_TF, stream_TF[0], 1e-6)
    assert torch.equal(torch.as_tensor(product_TF), torch.full((128, 8), 16.0, dtype=torch.bfloat16))
