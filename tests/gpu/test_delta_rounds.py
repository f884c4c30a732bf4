"""Rounds of Gated DeltaNet in one kernel against those by the kernels in Triton: the same bits, wherever blocks end."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from services.common.kernels.gated_delta import BLOCK, DeltaSpan
from services.common.kernels.gated_delta.cut import Cut, cut_rows
from services.common.kernels.gated_delta.kernel import delta_rows
from services.common.kernels.gated_delta.rounds import serves_round
from tests.gpu.delta_steps import bits_differ
from tests.kernels.gpu.delta_layer import EPS, NAN, QWEN, Layer
from tests.kernels.gpu.devices import DEVICE, INTERPRETED

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
FOLDED = (0, 0, BLOCK, 2 * BLOCK, 5 * BLOCK)


class Both:
    """One layer twice, with states and rings alike: of the kernels in Triton, and of the one that is tested."""

    def __init__(self, sequences: int, pick: random.Random) -> None:
        self.layers = [Layer(QWEN, torch.bfloat16, sequences) for _ in range(2)]
        self.sequences, self.pick = sequences, pick

    def fill(self, folded: list[int]) -> None:
        """Anything of any size, and NaN where nothing was folded."""
        first, second = self.layers
        first.state_SHKV.normal_().mul_(10.0 ** self.pick.uniform(-3, 1))
        first.ring_SRC.normal_()
        for slot, positions in enumerate(folded):
            if positions == 0:
                first.state_SHKV[slot] = NAN
        second.state_SHKV.copy_(first.state_SHKV)
        second.ring_SRC.copy_(first.ring_SRC)

    def rows(self, width: int) -> Tensor:
        """Of all sequences; some are NaN from a place on, as rejected rows may be."""
        rows_BWF = torch.randn(self.sequences, width, QWEN.features, device=DEVICE).to(torch.bfloat16)
        for sequence in range(self.sequences):
            if width > 1 and self.pick.random() < 0.3:
                rows_BWF[sequence, self.pick.randrange(1, width) :] = NAN
        return rows_BWF.flatten(0, 1)

    def run(self, rows_TF: Tensor, lengths: list[int], folded: list[int], slots_B: Tensor) -> list[Tensor]:
        """What rows read by either."""
        width = len(rows_TF) // self.sequences
        lengths_B, folded_B = (torch.tensor(x, device=DEVICE)[slots_B] for x in (lengths, folded))
        cuts: list[Cut | None] = [cut_rows(self.sequences, QWEN.heads, QWEN.v_dim, True), None]
        read = []
        for layer, cut in zip(self.layers, cuts, strict=True):
            span = DeltaSpan(slots_B, lengths_B, folded_B, None, width, layer.ring, QWEN.taps)
            assert cut is not None or serves_round(rows_TF, layer.constants, span, layer.state_SHKV), "another GPU"
            torch.cuda.synchronize()
            norm_V = layer.norm_V.to(DEVICE)
            read.append(
                delta_rows(rows_TF, layer.constants, norm_V, EPS, span, layer.state_SHKV, layer.ring_SRC, cut=cut)
            )
        return read


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("sequences", "width"),
    [(1, 1), (1, 5), (1, 8), (1, 16), (2, 1), (2, 11), (3, 2), (3, 16), (6, 7), (8, 1), (9, 16), (20, 3), (32, 8)],
)
def test_rounds_have_the_bits_of_chunks(sequences: int, width: int, full: bool) -> None:
    """Of what rows read, of states where a block is complete, and of rings; every place of a block comes up."""
    compare(sequences, width, full)


def compare(sequences: int, width: int, full: bool) -> None:
    pick = random.Random(sequences * 100 + width)
    both = Both(sequences, pick)
    torch.manual_seed(width)
    for trial in range(128 if full else 32 if sequences < 32 else 4):
        folded = [pick.choice(FOLDED) for _ in range(sequences)]
        lengths = [at + (trial + index) % (2 * BLOCK) for index, at in enumerate(folded)]
        both.fill(folded)
        expected_TF, read_TF = both.run(both.rows(width), lengths, folded, torch.randperm(sequences, device=DEVICE))
        assert torch.equal(read_TF.isnan(), expected_TF.isnan())
        same = (read_TF == expected_TF) | expected_TF.isnan()
        assert bool(same.all()), (trial, lengths, folded, int((~same).sum()))
        first, second = both.layers
        assert not bits_differ(second.state_SHKV, first.state_SHKV).any(), (trial, lengths, folded)
        assert not bits_differ(second.ring_SRC, first.ring_SRC).any(), (trial, lengths, folded)


def test_other_spans_go_through_the_kernels_of_chunks() -> None:
    layer = Layer(QWEN, torch.bfloat16, 1)
    one_1, ring, taps = torch.ones(1, dtype=torch.int64, device=DEVICE), layer.ring, QWEN.taps
    rows_TF = layer.rows(QWEN.widest + 1)
    prompt = DeltaSpan(one_1, one_1, one_1, one_1, 1, ring, taps)
    wide = DeltaSpan(one_1, one_1, one_1, None, QWEN.widest + 1, ring, taps)
    narrow = DeltaSpan(one_1, one_1, one_1, None, 1, ring, taps)
    assert not serves_round(rows_TF[:1], layer.constants, prompt, layer.state_SHKV)
    assert not serves_round(rows_TF, layer.constants, wide, layer.state_SHKV)
    assert not serves_round(rows_TF[:1].float(), layer.constants, narrow, layer.state_SHKV)
    assert serves_round(rows_TF[:1], layer.constants, narrow, layer.state_SHKV)
