"""Compiles the kernel for each tiling with nvcc, several at a time."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from services.common.kernels import cuda
from services.common.kernels.linear import fused
from services.common.kernels.linear.cuda import FOLDER
from tests.bench.gpu.clusters.tiling import Tiling

SOURCE = Path(__file__).with_name("product.cu")
_SECONDS = 60


def built(tilings: Iterable[Tiling], folder: Path) -> dict[Tiling, str]:
    """Compile each tiling to `cubin_of`; return what the compiler said of it: an error begins with "error"."""
    wanted = list(dict.fromkeys(tilings))
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return dict(zip(wanted, threads.map(lambda tiling: _built(tiling, folder), wanted), strict=True))


def cubin_of(tiling: Tiling, folder: Path) -> Path:
    """Where a tiling's machine code lies."""
    return folder / tiling.name / "product.cubin"


def command(tiling: Tiling, folder: Path) -> list[str]:
    """Return nvcc's command line. The target is spelt out: `-arch=sm_90a` alone may add a pass for plain sm_90."""
    values = {
        "ROWS": tiling.rows, "LINES": tiling.lines, "SUBS": tiling.subs, "STAGES": tiling.stages,
        "SHARE_X": tiling.share_x, "SHARE_W": tiling.share_w,
    }  # fmt: skip
    defines = [f"-D{name}={value}" for name, value in values.items()]
    target = "-gencode=arch=compute_90a,code=sm_90a"
    output = str(cubin_of(tiling, folder))
    sources = (cuda.FOLDER, FOLDER, Path(fused.__file__).parent)
    included = [f"-I{each}" for each in (folder / tiling.name, *sources)]
    return ["nvcc", "-cubin", "-O3", "-std=c++17", target, "-Xptxas=-v", *included, *defines, str(SOURCE), "-o", output]


def _built(tiling: Tiling, folder: Path) -> str:
    (folder / tiling.name).mkdir(parents=True, exist_ok=True)
    (folder / tiling.name / "mma.inc").write_text(cuda.wgmma("mma", tiling.lines, registers=False))
    try:
        ran = subprocess.run(command(tiling, folder), capture_output=True, text=True, check=False, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"error: {error}"
    said = " ".join((ran.stdout + ran.stderr).split())
    return f"error: {said[:600]}" if ran.returncode else said
