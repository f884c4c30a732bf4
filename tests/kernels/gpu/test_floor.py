"""The floor of top-k, top-p and min-p over several tiles, against a sort in float64."""

import math

import pytest
import torch
import triton

from services.common.kernels.accept import Entrant, SlotParams, SlotState
from services.common.kernels.accept.floor import floors
from services.common.kernels.accept.scores import PEAK_TILE
from tests.kernels.gpu.devices import DEVICE

VOCAB, SEED = 300 if DEVICE == "cpu" else 30_000, 11
CASES = [(0, 0.9, 0.0), (7, 1.0, 0.0), (50, 0.7, 0.1), (0, 0.99999, 0.0), (VOCAB + 1, 1.0, 0.0)]
if DEVICE != "cpu":
    CASES += [(0, 1.0, 0.1), (0, 0.05, 0.01), (0, 1.0, 0.0), (20, 0.999, 0.0), (VOCAB - 1, 0.9999, 0.0)]
CROWD = 7 if DEVICE == "cpu" else 600
"""Rows at once, by which sums must not be cut."""
NAMES = ["spread", "rounded", "alike", "equal", "heaps", "single", "masked", "far"]


def drawn(name: str, generator: torch.Generator) -> torch.Tensor:
    """Scores [rows, VOCAB]."""
    shape = (len(CASES), VOCAB)
    noise = torch.randn(shape, generator=generator)
    if name == "rounded":
        return (20.0 + noise * 2).bfloat16().float()
    if name == "alike":
        return 5.0 + noise * 1e-3
    if name == "equal":
        return torch.full(shape, -3.0).index_fill(1, torch.tensor([VOCAB - 1]), 2.0)
    if name == "heaps":
        return torch.where(noise > 1.5, 4.0, -1.0)
    if name == "single":
        return torch.full(shape, -math.inf).index_fill(1, torch.tensor([VOCAB // 2]), 0.0)
    if name == "masked":
        return torch.where(noise > 1.0, noise * 3, -math.inf)
    if name == "far":
        return noise * torch.where(noise > 0, 40.0, 1e30)
    return noise * 3


def expected(scores_V: torch.Tensor, top_k: int, top_p: float, min_p: float) -> tuple[float, float]:
    """The floor, and how near the mass there is to what was asked for."""
    ordered_V = scores_V.double().sort(descending=True).values
    floor, near = -math.inf, 1.0
    if 0 < top_k < VOCAB:
        floor = ordered_V[top_k - 1].item()
    if top_p < 1:
        weights_V = torch.where(ordered_V >= floor, (ordered_V - ordered_V[0]).exp(), 0.0)
        larger_V = torch.searchsorted(-ordered_V, -ordered_V)
        sums_V = torch.cat((weights_V.new_zeros(1), weights_V.cumsum(0)))
        before_V = sums_V[larger_V] / sums_V[-1]
        kept_V = ordered_V[(before_V < top_p) & (ordered_V >= floor)]
        near = (before_V - top_p).abs().min().item()
        floor = kept_V[-1].item()
    if min_p:
        floor = max(floor, ordered_V[0].item() + math.log(min_p))
    return floor, near


def floors_of(scores: torch.Tensor, rows: list[int]) -> list[float]:
    """The floors of some rows, each by the case of its number."""
    state = SlotState.allocate(len(CASES), 8, 64, device=DEVICE)
    for slot, (top_k, top_p, min_p) in enumerate(CASES):
        params = SlotParams(max_tokens=9, context_limit=50, temperature=1.0, top_k=top_k, top_p=top_p, min_p=min_p)
        state.admit(Entrant(slot, params, [1, 2]))
    padded = torch.full((len(rows), triton.cdiv(VOCAB, PEAK_TILE) * PEAK_TILE), -math.inf)
    padded[:, :VOCAB] = scores[rows]
    peaks = padded.view(len(rows), -1, PEAK_TILE).amax(-1).to(DEVICE)
    slots = torch.tensor(rows, dtype=torch.int32, device=DEVICE)
    found: list[float] = floors(scores[rows].to(DEVICE), peaks, slots, state, 1).tolist()
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_floor_is_that_of_a_sort(name: str) -> None:
    """Whether tiles can gather what shares the interval of the threshold, or hold too many for that."""
    scores = drawn(name, torch.Generator().manual_seed(SEED))
    found = floors_of(scores, list(range(len(CASES))))
    for row, case in enumerate(CASES):
        floor, near = expected(scores[row], *case)
        assert near < 1e-5 or found[row] == pytest.approx(floor, rel=1e-6), (name, case)


def test_the_floor_depends_on_no_other_row() -> None:
    scores = drawn("spread", torch.Generator().manual_seed(SEED))
    rows = [3, 0]
    found = floors_of(scores, list(range(len(CASES))))
    assert floors_of(scores, rows) == [found[row] for row in rows]
    crowd = [index % len(CASES) for index in range(CROWD)]
    assert floors_of(scores, crowd) == [found[row] for row in crowd]
