"""The law of sampled tokens against exact enumeration: 200,000 draws with fresh seeds per setting."""

import numpy as np
import pytest
import torch

from services.common.kernels.accept import Entrant, RoundResult, SlotParams, SlotState, accept
from tests.kernels.plain_sampling import Plain

VOCAB, DRAWS, CHUNK = 16, 200_000, 20_000
PROMPT, OUTPUT = [3, 3, 5, 9], [1, 1, 5, 2]
SETTINGS = {
    "temperature": {"temperature": 0.8},
    "hot": {"temperature": 1.7},
    "top_k": {"temperature": 1.0, "top_k": 5},
    "top_p": {"temperature": 1.0, "top_p": 0.8},
    "min_p": {"temperature": 1.0, "min_p": 0.12},
    "penalties": {"temperature": 1.0, "repetition_penalty": 1.4, "presence_penalty": 0.4, "frequency_penalty": 0.3},
    "everything": {
        "temperature": 0.9, "top_k": 9, "top_p": 0.9, "min_p": 0.03, "repetition_penalty": 0.8,
        "presence_penalty": -0.5, "frequency_penalty": 0.2, "logit_bias": ((4, 1.5), (6, -30.0)),
    },
}  # fmt: skip


def draw(params: SlotParams, logits_V: torch.Tensor) -> np.ndarray:
    state = SlotState.allocate(CHUNK, VOCAB, 16)
    state.admit(Entrant(0, params, PROMPT, OUTPUT))
    for name, tensor in vars(state).items():
        if name != "host":
            tensor[1:-1] = tensor[0]
    length, total = int(state.length_S[0]), np.zeros(VOCAB)
    rows = torch.arange(CHUNK, dtype=torch.int32)
    logits = logits_V.expand(CHUNK, 1, VOCAB).contiguous()
    drafts, result = torch.empty(CHUNK, 0, dtype=torch.int64), RoundResult.allocate(CHUNK, 1)
    fresh = [tensor.clone() for tensor in (state.counts_SV, state.generated_S, state.active_S)]
    for start in range(0, DRAWS, CHUNK):
        for tensor, value in zip((state.counts_SV, state.generated_S, state.active_S), fresh, strict=True):
            tensor.copy_(value)
        state.length_S.fill_(length)
        state.seed_S[:CHUNK] = torch.arange(start, start + CHUNK) * 0x9E3779B97F4A7C1
        accept(logits, drafts, rows, state, result)
        total += np.bincount(result.tokens_BW[:, 0].numpy(), minlength=VOCAB)
    return total / DRAWS


@pytest.mark.parametrize("name", SETTINGS)
def test_draws_follow_the_exact_law(name: str) -> None:
    params = SlotParams(max_tokens=10**6, context_limit=10**6, **SETTINGS[name])  # type: ignore[arg-type]
    logits = torch.randn(VOCAB, generator=torch.Generator().manual_seed(11)) * 1.5
    exact = Plain(params, PROMPT, OUTPUT).law(logits.tolist())
    frequencies = draw(params, logits)
    assert 0.5 * float(np.abs(frequencies - exact).sum()) < 0.01
    assert not frequencies[np.array(exact) == 0].any()
