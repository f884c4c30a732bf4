"""Gated DeltaNet by kernels over random rounds and chunks: reads and states are those of plain decoding, to the bit."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from services.common.kernels.gated_delta import BLOCK
from tests.gpu.delta_steps import Step, Texts, random_spans
from tests.kernels.gpu.delta_layer import NAN, QWEN, TINY, Layer, Shape, away
from tests.kernels.gpu.devices import DEVICE, DTYPES, INTERPRETED

LONG = Shape(1, 2, 128, 128, 16)
"""Qwen3.5's heads, few of them."""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("dtype", DTYPES)
def test_states_and_reads_are_those_of_plain_decoding(
    dtype: torch.dtype, full: bool, report_counts: Callable[[str, int], None]
) -> None:
    """To the bit, with NaN in rejected and in pad rows, and in slots before their first or a request's remains."""
    shape, widths, chunk, count, length = (
        (TINY, (1, 2, 4), 20, 2, 40) if INTERPRETED else (QWEN, (1, 4, 6, 8, 12, 16), 40, 6, 120)
    )
    texts = Texts(Layer(shape, dtype, count + 1), count, length)
    least, pick, sweeps = 1000 if full else 4 if INTERPRETED else 40, random.Random(11), 0
    while texts.rounds < least:
        texts.begin(NAN if sweeps % 2 == 0 else None)
        for _ in random_spans(texts, widths, chunk, pick):
            if texts.rounds >= least:
                break
        sweeps += 1
    assert texts.differ.tolist() == [0, 0]
    report_counts("delta_kernel_rounds_compared", texts.rounds)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("dtype", DTYPES)
def test_decoded_states_are_the_recurrence_token_by_token(dtype: torch.dtype, full: bool) -> None:
    """Within 1e-5 of their scale at every boundary, and to the bit those of a prompt in chunks of any size."""
    count = (512 if INTERPRETED else 8192) if full else 40
    layer, widest = Layer(TINY if INTERPRETED else LONG, dtype, 3), min(count, 2048)
    rows_TF = layer.rows(count)
    decode, prefill = Step(layer, 1, 1, False), Step(layer, 1, widest, True)
    one_1 = torch.ones(1, dtype=torch.int64, device=DEVICE)
    where_T1 = torch.arange(count, device=DEVICE)[:, None]
    read, states = [], []
    for at in range(count):
        read.append(decode(one_1, where_T1[at], one_1, rows_TF[None, at : at + 1])[0].clone())
        if at % BLOCK == 0 and at:
            states.append(layer.state_SHKV[1].clone())
    expected_TF, states_THKV = layer.expected(rows_TF)
    off = max(away(state, states_THKV[BLOCK * block + 15]) for block, state in enumerate(states))
    assert off <= 1e-5, off
    assert away(torch.cat(read), expected_TF) <= (1e-5 if dtype == torch.float32 else 1e-2)

    at, pick, chunks = 0, random.Random(3), []
    while at < count - 1:
        size = min(pick.randrange(1, widest + 1), count - 1 - at)
        rows_WF = F.pad(rows_TF[at : at + size], (0, 0, 0, widest - size), value=NAN)
        read_WF = prefill(one_1 * 2, one_1 * at, one_1 * size, rows_WF[None])[0]
        chunks.append(read_WF[:size].clone())
        assert not read_WF[size:].any()
        at += size
    assert torch.equal(torch.cat(chunks), torch.cat(read)[:-1])
    assert torch.equal(layer.state_SHKV[2], layer.state_SHKV[1])
