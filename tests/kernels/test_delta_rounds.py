"""Rounds of Gated DeltaNet in one kernel: its source is whole, it fits a multiprocessor, and who goes without it."""

from __future__ import annotations

import pytest
import torch

from services.common.kernels.gated_delta import DeltaConstants, DeltaSpan, ring_rows, rounds
from services.common.kernels.gated_delta.rounds.source import PROGRAMS, shared_bytes, source_of

PROCESSOR_SHARED_BYTES, RESERVED_BYTES = 233_472, 1024


@pytest.mark.parametrize("programs", PROGRAMS)
def test_a_source_is_whole(programs: int) -> None:
    """The compiler of a serving process finds no headers, so none may be asked for."""
    source = source_of(programs)
    assert "#include" not in source
    assert source.count('extern "C" __global__') == 1
    assert f"#define PROGRAMS {programs}\n" in source
    assert all(source.count(f"m64n{lines}k16") == 1 for lines in (16, 32, 128))


@pytest.mark.parametrize("programs", PROGRAMS)
def test_as_many_programs_as_are_meant_to_share_a_multiprocessor_fit_it(programs: int) -> None:
    assert programs * (shared_bytes(programs) + RESERVED_BYTES) <= PROCESSOR_SHARED_BYTES


def test_on_a_cpu_the_kernels_in_triton_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "_usable", lambda _: pytest.fail("it is no GPU"))
    conv_CK, of_H = torch.zeros(8192, 4), torch.zeros(32)
    constants = DeltaConstants(conv_CK, of_H, of_H, 16, 128)
    where = torch.zeros(1, dtype=torch.int64)
    span = DeltaSpan(where, where, where, None, 4, ring_rows(16, 4), 4)
    rows_TF, state_SHKV = torch.zeros(4, 12352, dtype=torch.bfloat16), torch.zeros(1, 32, 128, 128)
    assert not rounds.serves_round(rows_TF, constants, span, state_SHKV)
