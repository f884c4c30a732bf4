"""The memory budget: the arithmetic of a known engine, and our own."""

import pytest

from services.common.request.errors import PacelineError
from services.target.sizing.budget import MemoryBudget, MemoryTerms, blocks_within, context_within, plan_memory

MIB = 1 << 20
TARGET_TOKEN, DRAFT_TOKEN = (layers * 2 * 8 * 128 * 2 for layers in (36, 5))
REFERENCE = MemoryTerms(
    fixed={"draft_weights_and_a_tenth": int(1127.5 * MIB)},
    per_slot={"scratch": round(1579.0 * MIB / 256), "block_in_fill": 16 * (DRAFT_TOKEN + 9_216)},
    per_token={"draft_kv": DRAFT_TOKEN, "context_scratch": 10_240, "tail": 9_216, "pending": 25_600},
)


def test_the_reference_engines_reservation_is_reproduced() -> None:
    """The reference engine's figures for a 4B model with its drafter and 256 requests."""
    assert REFERENCE.token_bytes == 65_536
    assert REFERENCE.fixed_bytes + 256 * REFERENCE.slot_bytes == pytest.approx(2822.5 * MIB, abs=256)
    assert 256 * REFERENCE.per_slot["block_in_fill"] == 116 * MIB


def test_the_reference_engines_blocks_are_reproduced() -> None:
    """1828 blocks without the drafter become 427 with it."""
    assert TARGET_TOKEN == 147_456
    assert blocks_within(TARGET_TOKEN, 16, 4113 * MIB) == 1828
    assert blocks_within(TARGET_TOKEN + REFERENCE.token_bytes, 16, 1389 * MIB) == 427


def test_our_own_tokens_cost_target_and_draft_context_only() -> None:
    """No scratch, tail or pending bytes per token: features never leave the target."""
    assert TARGET_TOKEN + DRAFT_TOKEN == 147_456 + 20_480


def planned(available: int, slots: int = 4, most: int | None = None) -> MemoryBudget:
    """A small server, with terms of each kind."""
    terms = MemoryTerms({"weights": 1000}, {"buffers": 10}).plus(MemoryTerms(per_token={"target": 4, "draft": 1}))
    return plan_memory(terms, available, slots, 16, most)


def test_the_plan_fills_the_memory_and_no_more() -> None:
    """One more block would not fit; the pad block is part of the total, not of the pool."""
    budget = planned(2000)
    assert (budget.blocks, budget.total_bytes) == (11, 1000 + 40 + 12 * 80)
    assert budget.total_bytes <= 2000 < budget.total_bytes + 80
    assert planned(1_000_000, most=7).blocks == 7


def test_a_request_may_ask_for_no_more_than_the_pool_holds() -> None:
    """Whatever fits is left alone; less is cut to a step that a few blocks more or less do not move."""
    terms = MemoryTerms()
    for blocks in (1, 2, 3, 8, 40, 437, 438, 439, 511):
        held = blocks * 16
        cut = context_within(8192, MemoryBudget(terms, 4, blocks, 16, 0))
        assert held * 15 / 16 <= cut <= held, blocks
        assert context_within(held, MemoryBudget(terms, 4, blocks, 16, 0)) == held
    assert context_within(8192, MemoryBudget(terms, 4, 512, 16, 0)) == 8192
    assert {context_within(8192, MemoryBudget(terms, 4, blocks, 16, 0)) for blocks in range(432, 448)} == {6912}


def test_too_little_memory_is_refused_with_the_amount_needed() -> None:
    """A server that could not hold one block does not start."""
    assert planned(1200).blocks == 1
    with pytest.raises(PacelineError, match="1200 are needed"):
        planned(1199)


def test_a_term_is_counted_once() -> None:
    """Joining two lists with the same name is a mistake."""
    with pytest.raises(ValueError, match="twice: weights"):
        MemoryTerms({"weights": 1}).plus(MemoryTerms({"weights": 2}))
