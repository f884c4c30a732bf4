"""Rounds of Gated DeltaNet in one kernel: it fits a multiprocessor, and who goes without it."""

from __future__ import annotations

import pytest
import torch

from services.common.kernels.gated_delta import DeltaConstants, DeltaSpan, ring_rows, rounds
from services.common.kernels.gated_delta.rounds.source import PROGRAMS, many_bytes, many_grid, shared_bytes

PROCESSOR_SHARED_BYTES, RESERVED_BYTES = 233_472, 1024


def test_a_cta_with_a_multiprocessor_for_itself_fits_it() -> None:
    assert many_bytes() + RESERVED_BYTES <= PROCESSOR_SHARED_BYTES


@pytest.mark.parametrize(
    ("batch", "k_heads", "heads", "grid"),
    [(32, 16, 32, (16, 8)), (8, 16, 48, (32, 4)), (5, 16, 32, (16, 5)), (9, 16, 16, (16, 8)), (8, 128, 256, (128, 1))],
)
def test_pairs_of_heads_take_the_sequences_in_turn(batch: int, k_heads: int, heads: int, grid: tuple[int, int]) -> None:
    """No more CTAs than processors; heads that share queries and keys go in pairs, the last one may be alone."""
    assert many_grid(batch, k_heads, heads) == grid


class Launched:
    """Stands for a program, and keeps what it was launched with."""

    def __init__(self) -> None:
        self.grid: tuple[int, int] | None = None
        self.arguments: tuple[object, ...] = ()

    def launch(self, grid: tuple[int, int], *arguments: object) -> None:
        self.grid, self.arguments = grid, arguments


@pytest.mark.parametrize(
    ("batch", "width", "form"),
    [
        (1, 1, "one"), (1, 16, "one"), (2, 8, "one"), (3, 16, "one"), (4, 2, "one"), (5, 2, "two"), (7, 16, "two"),
        (8, 2, "many"), (32, 16, "many"),
    ],
)  # fmt: skip
def test_a_form_takes_the_rounds_it_is_for(batch: int, width: int, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From so many heads on two CTAs share a processor; the form for many takes rounds from eight sequences on."""
    forms = {name: Launched() for name in ("one", "two", "many")}
    monkeypatch.setattr(rounds, "program_of", lambda programs: forms["one" if programs == 1 else "two"])
    monkeypatch.setattr(rounds, "many_program", lambda: forms["many"])
    heads = 32
    where = torch.zeros(batch, dtype=torch.int64)
    constants = DeltaConstants(torch.zeros(8192, 4), torch.zeros(heads), torch.zeros(heads), 16, 128)
    span = DeltaSpan(where, where, where, None, width, ring_rows(16, 4), 4)
    rows_TF, out_TF = (torch.zeros(batch * width, size, dtype=torch.bfloat16) for size in (12_352, 4096))
    state_SHKV, ring_SRC = torch.empty(0, heads, 128, 128), torch.empty(0, span.ring, 8256)
    norm_V = torch.zeros(128, dtype=torch.bfloat16)
    rounds.round_rows(rows_TF, constants, norm_V, 1e-6, span, state_SHKV, ring_SRC, out_TF)
    assert [name for name, program in forms.items() if program.grid is not None] == [form]
    assert forms[form].grid == ((16, 8) if form == "many" else (heads, batch))
    assert len(forms[form].arguments) == (21 if form == "many" else 20)


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
