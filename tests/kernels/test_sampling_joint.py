"""The joint law of three tokens committed over drafted rounds, and the law of the first, against exact enumeration."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from services.common.kernels.accept import Entrant, RoundResult, SlotParams, SlotState, accept
from tests.kernels.plain_sampling import Plain

VOCAB, TOKENS, WIDTH, CHUNK = 16, 3, 4, 20_000
PROMPT, OUTPUT = [3, 3, 5, 9], [1, 1, 5, 2]
LEAST_P, FEWEST_EXPECTED = 1e-4, 5.0
FILTERS: tuple[dict[str, Any], ...] = ({}, {"top_k": 5}, {"top_p": 0.8}, {"min_p": 0.12})
PENALTIES: tuple[dict[str, Any], ...] = (
    {},
    {"repetition_penalty": 1.4, "presence_penalty": 0.4, "frequency_penalty": 0.3},
)
SETTINGS = [
    {"temperature": temperature, **chosen, **penalties}
    for temperature, chosen, penalties in product((0.7, 1.0, 1.5), FILTERS, PENALTIES)
]
SAMPLE = (0, 13, 23)


def enumerated(params: SlotParams, table_VV: Tensor) -> np.ndarray:
    """Probability of every three tokens where the logits of a row follow from the token before it."""
    rows = table_VV.tolist()
    joint = np.ones((VOCAB,) * TOKENS)
    for length in range(TOKENS):
        for start in product(range(VOCAB), repeat=length):
            known = [*OUTPUT, *start]
            law = np.array(Plain(params, PROMPT, known).law(rows[known[-1]]))
            joint[start] *= law.reshape(-1, *(1,) * (TOKENS - length - 1))
    return joint


def drawn(params: SlotParams, table_VV: Tensor, seeds_B: Tensor, source: torch.Generator) -> Tensor:
    """The first three tokens of requests with these seeds; drafts are likely tokens in part and random ones in part."""
    state, rows_B = SlotState.allocate(CHUNK, VOCAB, 32), torch.arange(CHUNK, dtype=torch.int32)
    state.admit(Entrant(0, params, PROMPT, OUTPUT))
    for name, tensor in vars(state).items():
        if name != "host":
            tensor[1:-1] = tensor[0]
    state.seed_S[:CHUNK] = seeds_B
    made_BT, done_B = torch.zeros(CHUNK, TOKENS + WIDTH, dtype=torch.int64), torch.zeros(CHUNK, dtype=torch.int64)
    for _ in range(TOKENS):
        said_BW = torch.empty(CHUNK, WIDTH, dtype=torch.int64)
        said_BW[:, 0] = state.anchor_S[:CHUNK]
        for place in range(1, WIDTH):
            likely_B = table_VV[said_BW[:, place - 1]].argmax(1)
            random_B = torch.randint(VOCAB, (CHUNK,), generator=source)
            said_BW[:, place] = torch.where(torch.rand(CHUNK, generator=source) < 0.6, likely_B, random_B)
        result = RoundResult.allocate(CHUNK, WIDTH)
        accept(table_VV[said_BW].contiguous(), said_BW[:, 1:].contiguous(), rows_B, state, result)
        places_BW = done_B[:, None].clamp(max=TOKENS) + torch.arange(WIDTH)
        made_BT.scatter_(1, places_BW, result.tokens_BW)
        done_B += result.count_B
    assert int(result.accepted_B.sum()) > 0
    return made_BT[:, :TOKENS]


def p_value(counts: np.ndarray, law: np.ndarray) -> float:
    """Of Pearson's test; cells too rare for it count as one."""
    expected = counts.sum() * law
    rare = expected < FEWEST_EXPECTED
    seen = np.append(counts[~rare], counts[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum())
    seen, wanted = seen[wanted > 0], wanted[wanted > 0]
    statistic = float(((seen - wanted) ** 2 / wanted).sum())
    half = torch.tensor([(len(seen) - 1) / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def test_the_test_itself_tells_laws_apart() -> None:
    law, other = np.array([0.5, 0.3, 0.2]), np.array([0.5, 0.28, 0.22])
    assert p_value(20_000 * law, law) == 1.0
    assert p_value(20_000 * other, law) < LEAST_P


@pytest.mark.timeout(1800)
def test_three_tokens_follow_the_exact_law(full: bool) -> None:
    for number in range(len(SETTINGS)) if full else SAMPLE:
        compare(number, 200_000 if full else CHUNK)


def compare(number: int, draws: int) -> None:
    params = SlotParams(max_tokens=10**6, context_limit=10**6, **SETTINGS[number])
    source = torch.Generator().manual_seed(1000 + number)
    table_VV = torch.randn(VOCAB, VOCAB, generator=source) * 1.5
    joint = enumerated(params, table_VV)
    counts = np.zeros(VOCAB**TOKENS)
    for start in range(0, draws, CHUNK):
        seeds_B = (torch.arange(start, start + CHUNK) + 1) * 0x9E3779B97F4A7C1
        tokens_BT = drawn(params, table_VV, seeds_B, source)
        cells_B = (tokens_BT * torch.tensor([VOCAB**2, VOCAB, 1])).sum(1)
        counts += np.bincount(cells_B.numpy(), minlength=VOCAB**TOKENS)
    assert not counts[joint.ravel() == 0].any()
    assert p_value(counts, joint.ravel()) > LEAST_P
    first = counts.reshape(VOCAB, -1).sum(1)
    assert p_value(first, joint.sum((1, 2))) > LEAST_P
    assert draws == CHUNK or 0.5 * np.abs(first / draws - joint.sum((1, 2))).sum() < 0.01
