"""The floor of top-k, top-p and min-p over several tiles, against a sort in float64."""

import math

import pytest
import torch
import triton

from services.common.kernels.accept import SlotParams, SlotState
from services.common.kernels.accept.floor import floors
from tests.gpu.kernels.devices import DEVICE

VOCAB, SEED = 260 if DEVICE == "cpu" else 30_000, 11
CASES = [(0, 0.9, 0.0), (7, 1.0, 0.0), (50, 0.7, 0.1)]
NAMES = ["spread"]
if DEVICE != "cpu":
    CASES += [(0, 1.0, 0.1), (0, 0.05, 0.01), (0, 1.0, 0.0), (20, 0.999, 0.0)]
    NAMES += ["alike", "equal", "heaps"]


def drawn(name: str, generator: torch.Generator) -> torch.Tensor:
    """Scores [rows, VOCAB]: spread, alike, equal but for one, or two heaps."""
    shape = (len(CASES), VOCAB)
    noise = torch.randn(shape, generator=generator)
    if name == "alike":
        return 5.0 + noise * 1e-3
    if name == "equal":
        return torch.full(shape, -3.0).index_fill(1, torch.tensor([VOCAB - 1]), 2.0)
    if name == "heaps":
        return torch.where(noise > 1.5, 4.0, -1.0)
    return noise * 3


def expected(scores_V: torch.Tensor, top_k: int, top_p: float, min_p: float) -> tuple[float, float]:
    """The floor, and how near the mass there is to what was asked for."""
    ordered_V = scores_V.double().sort(descending=True).values
    floor, near = -math.inf, 1.0
    if top_k:
        floor = ordered_V[min(top_k, VOCAB) - 1].item()
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


@pytest.mark.parametrize("name", NAMES)
def test_the_floor_is_that_of_a_sort(name: str) -> None:
    """Scores that few or many tiles share bits with, so that tiles gather and tiles that cannot go on reading."""
    scores = drawn(name, torch.Generator().manual_seed(SEED))
    state = SlotState.allocate(len(CASES), 8, 64, device=DEVICE)
    for slot, (top_k, top_p, min_p) in enumerate(CASES):
        params = SlotParams(9, 50, temperature=1.0, top_k=top_k, top_p=top_p, min_p=min_p)
        state.admit(slot, params, [1, 2])
    tile = 100
    padded = torch.full((len(CASES), triton.cdiv(VOCAB, tile) * tile), -math.inf)
    padded[:, :VOCAB] = scores
    peaks = padded.view(len(CASES), -1, tile).amax(-1).to(DEVICE)
    rows = torch.arange(len(CASES), dtype=torch.int32, device=DEVICE)
    found = floors(scores.to(DEVICE), peaks, rows, state, 1).tolist()
    for row, case in enumerate(CASES):
        floor, near = expected(scores[row], *case)
        assert near < 1e-5 or found[row] == pytest.approx(floor, rel=1e-6), (name, case)
