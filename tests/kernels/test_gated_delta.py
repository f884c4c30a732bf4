"""Gated DeltaNet in blocks: close to the recurrence token by token, and the same bits however rounds were cut."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from services.common.kernels.gated_delta import BLOCK, DeltaConstants, gated_delta, plan_blocks, ring_rows
from services.common.kernels.gated_delta.pointwise import sigmoid, silu, softplus
from services.common.kernels.gated_delta.reference import gated_delta as token_loop
from services.common.kernels.torchscript import compiled

K_HEADS, HEADS, K_DIM, V_DIM, TAPS, WIDEST = 2, 4, 8, 16, 4, 16
CHANNELS = 2 * K_HEADS * K_DIM + HEADS * V_DIM
WIDTHS, LONGEST_CHUNK = (1, 4, 6, 8, 12, 16), 40
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
NAN = float("nan")
RULE = compiled(gated_delta)


def wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def constants(dtype: torch.dtype, rate: float = 0.3) -> DeltaConstants:
    source = torch.Generator().manual_seed(5)
    conv, decay, bias = (torch.randn(size, generator=source) for size in ((CHANNELS, TAPS), HEADS, HEADS))
    return DeltaConstants(conv.to(dtype), (-rate * decay.abs()).to(dtype), bias.to(dtype), K_HEADS, K_DIM)


def made_rows(count: int, dtype: torch.dtype, seed: int = 7) -> Tensor:
    return torch.randn(count, CHANNELS + 2 * HEADS, generator=torch.Generator().manual_seed(seed)).to(dtype)


class Slots:
    """States and rings of some slots, full of NaN, and how far each has come."""

    def __init__(self, dtype: torch.dtype, slots: int = 4) -> None:
        self.constants = constants(wide(dtype))
        self.ring = ring_rows(WIDEST, TAPS)
        self.state_SHKV = torch.full((slots, HEADS, K_DIM, V_DIM), NAN, dtype=wide(dtype))
        self.ring_SRC = torch.full((slots, self.ring, CHANNELS + 2 * HEADS), NAN, dtype=dtype)
        self.folded_S, self.length_S = torch.zeros(slots, dtype=torch.int64), torch.zeros(slots, dtype=torch.int64)

    def run(self, slots: list[int], rows_BWC: Tensor, valid: list[int] | None = None) -> Tensor:
        """Runs a span of each slot and folds; lengths are the caller's to move."""
        slots_B = torch.tensor(slots)
        valid_B = None if valid is None else torch.tensor(valid)
        lengths_B, folded_B, width = self.length_S[slots_B], self.folded_S[slots_B], rows_BWC.shape[1]
        plan = plan_blocks(slots_B, lengths_B, folded_B, valid_B, width, self.ring, TAPS)
        read_TF = RULE(rows_BWC.flatten(0, 1), self.constants, plan, self.state_SHKV, self.ring_SRC)
        self.folded_S.index_copy_(0, slots_B, plan.folded_B)
        return read_TF.view(*rows_BWC.shape[:2], -1)


@dataclass
class Told:
    """What one sequence has read, and its state at every boundary that was stored."""

    read: list[Tensor] = field(default_factory=list)
    states: dict[int, Tensor] = field(default_factory=dict)

    def note(self, slots: Slots, slot: int, read_WF: Tensor) -> None:
        self.read.append(read_WF)
        folded, length = int(slots.folded_S[slot]), int(slots.length_S[slot])
        assert folded % BLOCK == 0 and folded <= length and length - folded <= BLOCK - 1 + WIDEST
        if folded:
            self.states[folded] = slots.state_SHKV[slot].clone()

    def same_states(self, other: "Told") -> int:
        """How many boundaries both have stored; their states are equal to the bit."""
        common = self.states.keys() & other.states.keys()
        assert all(torch.equal(self.states[place], other.states[place]) for place in common)
        return len(common)


def plain(rows_TC: Tensor, slot: int = 2) -> Told:
    """One row after the other, alone."""
    slots, told = Slots(rows_TC.dtype), Told()
    for row_C in rows_TC:
        read_1WF = slots.run([slot], row_C[None, None])
        slots.length_S[slot] += 1
        told.note(slots, slot, read_1WF[0])
    return told


def cut_at_random(texts: list[Tensor], pick: random.Random) -> tuple[list[Told], int]:
    """Prompts in chunks, each alone, then rounds of all that have rows left, with pad rows; returns rounds, too."""
    slots, told, pad, rounds = Slots(texts[0].dtype, len(texts) + 1), [Told() for _ in texts], len(texts), 0
    for slot, rows_TC in enumerate(texts):
        for _ in range(pick.randrange(3)):
            at, count = int(slots.length_S[slot]), pick.randrange(1, LONGEST_CHUNK + 1)
            if at + LONGEST_CHUNK > len(rows_TC):
                break
            span_WC = rows_TC[at : at + LONGEST_CHUNK].clone()
            span_WC[count:] = NAN
            read_1WF = slots.run([slot], span_WC[None], [count])
            slots.length_S[slot] += count
            told[slot].note(slots, slot, read_1WF[0, :count])
            rounds += 1
    while live := [slot for slot, rows in enumerate(texts) if int(slots.length_S[slot]) < len(rows) - WIDEST]:
        width, batch = pick.choice(WIDTHS), pick.sample(live, pick.randrange(1, len(live) + 1))
        starts = [int(slots.length_S[slot]) for slot in batch]
        kept = [pick.randrange(1, width + 1) for _ in batch]
        span_BWC = torch.stack([texts[slot][at : at + width] for slot, at in zip(batch, starts, strict=True)])
        for row, count in enumerate(kept):
            span_BWC[row, count:] = NAN if pick.random() < 0.5 else 9.0
        padded_BWC = torch.cat((span_BWC, torch.full_like(span_BWC[:1], NAN)))
        read_BWF = slots.run([*batch, pad], padded_BWC)
        for row, (slot, count) in enumerate(zip(batch, kept, strict=True)):
            slots.length_S[slot] += count
            told[slot].note(slots, slot, read_BWF[row, :count])
        rounds += 1
    return told, rounds


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("dtype", DTYPES)
def test_states_and_reads_are_those_of_plain_decoding(
    dtype: str, full: bool, report_counts: Callable[[str, int], None]
) -> None:
    """To the bit, with NaN in rejected rows, in pad rows, and in slots before their first."""
    texts = [made_rows(count, DTYPES[dtype], seed) for seed, count in enumerate((84, 68, 45))]
    expected = [plain(rows_TC) for rows_TC in texts]
    rounds, states, least, pick = 0, 0, 1000 if full else 20, random.Random(11)
    while rounds < least:
        told, more = cut_at_random(texts, pick)
        for one, other in zip(told, expected, strict=True):
            read_TF = torch.cat(one.read)
            assert torch.equal(read_TF, torch.cat(other.read)[: len(read_TF)])
            states += one.same_states(other)
        rounds += more
    assert states >= rounds // 10
    report_counts("delta_rounds_compared", rounds)
    report_counts("delta_states_compared", states)


@pytest.mark.parametrize(("dtype", "bound"), [("float64", 1e-13), ("float32", 1e-5), ("bfloat16", 1e-5)])
def test_blocks_are_the_recurrence_token_by_token(dtype: str, bound: float, full: bool) -> None:
    """Within a bound of their scale, at every boundary of a long text: nothing grows."""
    rows_TC = made_rows(8192 if full else 512, DTYPES[dtype])
    slots = Slots(DTYPES[dtype])
    conv, decay, bias, *sizes = slots.constants
    exact = DeltaConstants(conv.double(), decay.double(), bias.double(), *sizes)
    reads_THV, states_THKV = token_loop(rows_TC, exact, V_DIM)
    for at in range(0, len(rows_TC), 128):
        read_1WF = slots.run([1], rows_TC[None, at : at + 128], [128])
        slots.length_S[1] += 128
        assert away(read_1WF[0], reads_THV[at : at + 128].flatten(1)) <= bound
        assert away(slots.state_SHKV[1], states_THKV[at + 127]) <= bound


def away(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).abs().max() / exact.abs().max())


def test_a_row_that_is_not_finite_reads_nan_and_so_do_those_whose_convolution_meets_it() -> None:
    rows_TC = made_rows(16, torch.float32)
    expected_WF = Slots(torch.float32).run([0], rows_TC[None])[0]
    rows_TC[5, 3] = float("inf")
    read_WF = Slots(torch.float32).run([0], rows_TC[None])[0]
    assert torch.equal(read_WF[:5], expected_WF[:5])
    assert bool(read_WF[5 : 5 + TAPS].isnan().all())
    assert bool(read_WF[5 + TAPS :].isfinite().all())


def test_a_slot_reads_nothing_of_another() -> None:
    """Neither of its neighbours in a round nor of the slot's last request."""
    rows_TC = made_rows(48, torch.float32)
    slots = Slots(torch.float32)
    slots.run([1], made_rows(40, torch.float32, 1)[None], [40])
    slots.folded_S[1] = 0
    both_BWC = torch.stack((rows_TC, made_rows(48, torch.float32, 2)))
    alone_WF = Slots(torch.float32).run([3], rows_TC[None], [48])[0]
    assert torch.equal(slots.run([1, 2], both_BWC, [48, 31])[0], alone_WF)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bits_do_not_depend_on_where_a_number_lies(dtype: torch.dtype) -> None:
    x = torch.randn(1024, generator=torch.Generator().manual_seed(1), dtype=dtype) * 4
    for function, theirs in ((sigmoid, torch.sigmoid), (silu, torch.nn.functional.silu), (softplus, _softplus)):
        whole = function(x)
        assert all(torch.equal(torch.cat([function(part) for part in x.split(size)]), whole) for size in (1, 3, 16, 33))
        assert torch.allclose(whole, theirs(x), rtol=4 * torch.finfo(dtype).eps, atol=4 * torch.finfo(dtype).eps)
    assert softplus(torch.tensor([-900.0, 900.0], dtype=dtype)).tolist() == [0.0, 900.0]


def _softplus(x: Tensor) -> Tensor:
    return torch.nn.functional.softplus(x, threshold=100)
