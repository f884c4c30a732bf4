"""Log-probabilities by kernels: those of float64, of a row alone, and equal logits by id."""

import pytest
import torch
from torch import Tensor

from services.common.kernels.accept import logprobs
from tests.kernels.gpu.devices import DEVICE, DTYPES, INTERPRETED, randn

VOCAB = 259 if INTERPRETED else 32_003
"""No row but the first begins where memory is read in whole vectors."""
ROWS, TOP = (2, 2), 5


@pytest.fixture(params=DTYPES)
def logits(request: pytest.FixtureRequest) -> Tensor:
    """A few values, most of them often: ties are the rule in bfloat16."""
    return (randn(*ROWS, VOCAB, seed=5) * 4).round().to(request.param) / 2


def tokens() -> Tensor:
    return torch.tensor([[0, VOCAB - 1], [-1, 8]], device=DEVICE)


def test_they_are_those_of_the_whole_row(logits: Tensor) -> None:
    chosen, ids, values = logprobs(logits, tokens(), TOP)
    exact = logits.double().log_softmax(-1)
    expected = exact.gather(2, tokens().clamp(min=0)[..., None])[..., 0]
    assert torch.allclose(chosen.double(), expected, rtol=1e-6, atol=2e-6)
    assert torch.allclose(values.double(), exact.gather(2, ids), rtol=1e-6, atol=2e-6)
    assert chosen.dtype == values.dtype == torch.float32 and ids.dtype == torch.int64


def test_equal_logits_are_listed_by_id(logits: Tensor) -> None:
    _, ids, _ = logprobs(logits, tokens(), TOP)
    for row, found in zip(logits.flatten(0, 1).tolist(), ids.flatten(0, 1).tolist(), strict=True):
        assert found == sorted(range(VOCAB), key=lambda token, row=row: (-row[token], token))[:TOP]  # type: ignore[misc]


def test_a_row_has_the_same_bits_beside_any_others(logits: Tensor) -> None:
    together = logprobs(logits, tokens(), TOP)
    for batch in range(ROWS[0]):
        for width in range(1, ROWS[1] + 1):
            alone = logprobs(logits[batch : batch + 1, :width].clone(), tokens()[batch : batch + 1, :width], TOP)
            assert all(
                torch.equal(one, many[batch : batch + 1, :width]) for one, many in zip(alone, together, strict=True)
            )
    spoilt = logits.clone()
    spoilt[:, 1:] = torch.nan
    poisoned = logprobs(spoilt, tokens(), TOP)
    assert all(torch.equal(one[:, :1], many[:, :1]) for one, many in zip(poisoned, together, strict=True))


def test_tokens_that_cannot_be_have_none() -> None:
    logits = torch.full((1, 1, VOCAB), float("-inf"), device=DEVICE)
    logits[..., 3] = 1.0
    chosen, ids, values = logprobs(logits, torch.tensor([[2]], device=DEVICE), 2)
    assert chosen.item() == -torch.inf
    assert ids.tolist() == [[[3, 0]]] and values.tolist() == [[[0.0, -torch.inf]]]
