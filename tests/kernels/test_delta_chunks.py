"""Chunks of Gated DeltaNet in CUDA C++: they fit a multiprocessor, and who goes without them."""

from __future__ import annotations

import pytest
import torch

from services.common.kernels.gated_delta import DeltaConstants, DeltaSpan, chunks, ring_rows
from services.common.kernels.gated_delta.chunks.source import (
    SHARING,
    chain_bytes,
    prepare_bytes,
)

PROCESSOR_SHARED_BYTES, RESERVED_BYTES = 233_472, 1024


@pytest.mark.parametrize("size", [prepare_bytes(), chain_bytes()])
def test_as_many_programs_as_are_meant_to_share_a_multiprocessor_fit_it(size: int) -> None:
    assert SHARING * (size + RESERVED_BYTES) <= PROCESSOR_SHARED_BYTES


def test_on_a_cpu_other_kernels_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "_usable", lambda _: pytest.fail("it is no GPU"))
    conv_CK, of_H = torch.zeros(8192, 4), torch.zeros(32)
    constants = DeltaConstants(conv_CK, of_H, of_H, 16, 128)
    where = torch.zeros(1, dtype=torch.int64)
    span = DeltaSpan(where, where, where, where, 512, ring_rows(16, 4), 4)
    rows_TF, state_SHKV = torch.zeros(512, 12352, dtype=torch.bfloat16), torch.zeros(1, 32, 128, 128)
    assert not chunks.serves_chunk(rows_TF, constants, span, state_SHKV)
