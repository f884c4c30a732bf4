"""The check at start on a GPU: the embedded pair passes strictly; what is planted is found, named, and mended."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from deploy.stack import EMBEDDED
from services.common.kernels.linear import allowed
from services.common.kernels.span_attention import kernel as attention
from services.common.request.errors import PacelineError
from services.target.build_device import build_worker
from services.target.device.exact import check, verdict
from services.target.device.exact.check import Exactness
from services.target.settings import TargetSettings
from tests.bench.gpu.shapes import QWEN3_4B
from tests.kernels.gpu.devices import DEVICE, INTERPRETED
from tests.support.tiny_checkpoints import write_configs

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
SETTINGS: dict[str, Any] = {
    "device": DEVICE, "dtype": "bfloat16", "drafter_address": "unix:/nowhere", "handoff": "host",
    "memory_bytes": 6 << 30, "slots": 8,
}  # fmt: skip
MANY_ROWS = 64
MOST_SECONDS = 10.0


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Verdicts of this test alone, and no refusals of others; compiled kernels stay where they are."""
    monkeypatch.setattr(verdict, "compiled_kernels", lambda: tmp_path)
    allowed.allow_all()
    yield tmp_path
    allowed.allow_all()


def started(exact: str, **changes: Any) -> Exactness:
    """What a target of the embedded pair finds when it starts."""
    models = {"model": str(EMBEDDED / "target"), "drafter_model": str(EMBEDDED / "drafter")}
    worker = build_worker(TargetSettings(**(models | SETTINGS | {"exact": exact} | changes)), os.getpid())
    found = worker.exactness
    worker.close()
    del worker
    gc.collect()
    torch.cuda.empty_cache()
    return found


def test_the_embedded_pair_passes_strictly_and_is_remembered() -> None:
    first = started("strict")
    print(first)
    assert first.verdict is not None and first.verdict.named == ""
    assert first.verdict.shapes > 4 * 4, "four buckets at three widths, and packs of prompts"
    assert started("strict").kept


def test_products_that_the_library_splits_are_found_and_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every product of many rows is the sum of two rounded halves, as a split along the depth would round it.

    Up to 128 rows the library multiplies none.
    """
    plant_split(monkeypatch)
    with pytest.raises(PacelineError, match="verify 32 x 8") as refusal:
        started("strict", slots=32)
    print(refusal.value)
    found = started("fallback", slots=32).verdict
    print(found)
    assert found is not None and "verify 32 x 8" in found.mended
    assert found.differing == ()


def plant_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces the library's products of a GPU's rows above MANY_ROWS."""

    def halved(product: Callable[..., Tensor], depth: int) -> Callable[..., Tensor]:
        """`depth` is the dimension of the second operand along which is added."""

        def split(x_TD: Tensor, weight: Tensor, *rest: Any, **named: Any) -> Tensor:
            if not x_TD.is_cuda or x_TD.shape[0] <= MANY_ROWS:
                return product(x_TD, weight, *rest, **named)
            middle = x_TD.shape[1] // 2
            left, right = weight.narrow(depth, 0, middle), weight.narrow(depth, middle, x_TD.shape[1] - middle)
            total_TF = product(x_TD[:, :middle], left, *rest) + product(x_TD[:, middle:], right, *rest)
            return named["out"].copy_(total_TF) if named.get("out") is not None else total_TF

        return split

    monkeypatch.setattr(torch.nn.functional, "linear", halved(torch.nn.functional.linear, 1))
    monkeypatch.setattr(torch, "mm", halved(torch.mm, 0))


class Scaled:
    """The kernel of attention with larger scores for spans of several rows."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        def launch(*args: Any, **named: Any) -> Any:
            scale = args[-1] * (1.01 if named["WIDTH"] > 1 else 1.0)
            return self._kernel[grid](*args[:-1], scale, **named)

        return launch


def test_scores_that_follow_the_number_of_rows_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """No product mends that: the shapes stay named, and the library keeps their rows."""
    monkeypatch.setattr(attention, "attend_kernel", Scaled(vars(attention)["attend_kernel"]))
    with pytest.raises(PacelineError, match="verify 1 x 8"):
        started("strict")
    found = started("fallback").verdict
    print(found)
    assert found is not None and "verify 1 x 8" in found.differing
    assert found.refused == () and allowed.refused() == ()


@pytest.mark.parametrize("slots", [8, 128])
def test_a_check_of_qwen3_4b_takes_ten_seconds_at_most(
    slots: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(check._LOG, "info", lambda message, extra: told.append(extra))
    pair = write_configs(tmp_path, QWEN3_4B)
    found = started(
        "fallback", model=str(pair.target), drafter_model=str(pair.drafter), random_weights=True, slots=slots,
        memory_bytes=40 << 30, context_limit=32_000,
    )  # fmt: skip
    print(found, told)
    assert found.verdict is not None and found.verdict.named == ""
    assert told[-1]["seconds"] <= MOST_SECONDS
