"""What a token of context adds to a verify on a GPU: about the time that its keys and values take to read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.bench.gpu.rig import Rig, RigSettings
from tests.bench.gpu.shapes import QWEN3_4B, kv_bytes
from tests.bench.gpu.steps import read_bandwidth
from tests.kernels.gpu.devices import INTERPRETED

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
SHAPE = replace(QWEN3_4B, layers=8, taps=(1, 2, 3, 4, 5))
SLOTS, MEMORY_BYTES = 32, 12 << 30


def test_a_token_of_context_takes_the_time_of_its_bytes(tmp_path: Path) -> None:
    rig = Rig(RigSettings(SHAPE, "cuda", "bfloat16", SLOTS, (1, 4, 8), 2048, MEMORY_BYTES), tmp_path)
    state = rig.pool.state
    before = state.slots.length_S.clone(), state.block_table_SN.clone()
    found = rig.worker.runner.context_micros()
    assert torch.equal(before[0], state.slots.length_S)
    assert torch.equal(before[1], state.block_table_SN)
    floor = kv_bytes(SHAPE, 1, 1) / read_bandwidth(rig) * 1e6
    told = f"floor {floor:.4f} us, found {found}"
    print(told)
    assert all(0.5 * floor < micros < 3.0 * floor for micros in found.values()), told
