"""The gate must fail when something is wrong: three seeded faults, each of a kind that it must find."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from services.common.kernels import prepare_span as prepare_rows
from services.common.kernels.accept import accept
from services.common.kernels.mailbox import read_mailbox
from services.common.kernels.span_attention import Mask, Span, plan_span
from services.target.device import verify
from tests.lossless.gate import Case, Tally, make_specs, run_gate
from tests.lossless.pairs import made_up_pair

SEED = 20262


def gate(temperature: float = 0.0) -> Tally:
    """Four requests at W = 4 with a drafter that is always right, against plain decoding without the fault."""
    case = Case("float64", temperature, 4, "perfect", 1)
    return run_gate(made_up_pair(), [case], lambda t: make_specs(320, 4, 40, t, SEED), SEED)


def kv_off_by_one(table_BN: Tensor, lengths_B: Tensor, width: int, block_size: int, mask: Mask) -> Span:
    """Rows of a wide span are written one place too far."""
    span = plan_span(table_BN, lengths_B, width, block_size, mask=mask)
    shifted = plan_span(table_BN, lengths_B + 1, width, block_size, mask=mask)
    return span if width == 1 else replace(span, slots_T=shifted.slots_T)


def one_row_mask_error(table_BN: Tensor, lengths_B: Tensor, width: int, block_size: int, mask: Mask) -> Span:
    """Row 1 of a wide span does not see the newest token before it."""
    span = plan_span(table_BN, lengths_B, width, block_size, mask=mask)
    if width > 1 and span.bias_B1WT is not None:
        span.bias_B1WT[torch.arange(len(lengths_B)), 0, 1, lengths_B] = float("-inf")
    return span


def swapped_draft_rows(*arguments: Any) -> Tensor:
    """Drafts 0 and 1 change places between the forward and the comparison."""
    drafts_BK = read_mailbox(*arguments)
    drafts_BK[:, :2] = drafts_BK[:, :2].flip(1)
    return drafts_BK


def unswapping_accept(logits: Tensor, drafts_BK: Tensor, *rest: Any) -> None:
    """Compares the drafts in their first order."""
    drafts_BK = drafts_BK.clone()
    drafts_BK[:, :2] = drafts_BK[:, :2].flip(1)
    accept(logits, drafts_BK, *rest)


def test_without_a_fault_the_gate_is_green() -> None:
    assert gate().mismatches == 0


@pytest.mark.parametrize(
    ("temperature", "fault"),
    [
        (0.0, kv_off_by_one),
        (0.8, one_row_mask_error),
        pytest.param(0.8, kv_off_by_one, marks=pytest.mark.whole),
        pytest.param(0.0, one_row_mask_error, marks=pytest.mark.whole),
    ],
)
def test_a_fault_in_the_span_is_found(
    fault: Callable[..., Span], temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare_rows, "plan_span", fault)
    assert gate(temperature).mismatches > 0


def test_swapped_draft_rows_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "read_mailbox", swapped_draft_rows)
    monkeypatch.setattr(verify, "accept", unswapping_accept)
    assert gate().mismatches > 0
