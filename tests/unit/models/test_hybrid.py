"""What trains a hybrid computes what is served: in chunks, row by row, and by the code of services."""

import importlib
from pathlib import Path

import pytest
import torch
from torch import Tensor

from models.training.delta_rule import CHUNK, in_chunks, one_row
from models.training.export import write_target
from models.training.muon import Muon
from models.training.settings import Delta, Shape
from models.training.target import Target
from services.common.model import load_target
from tests.unit.common.model.pairs import BLOCK_SIZE, forward, poisoned_states, span_at, tables

SHAPE = Shape(
    vocab_size=96, hidden_size=32, intermediate_size=48, num_layers=4, num_heads=4, head_dim=16,
    delta=Delta(k_dim=16, v_dim=16),
)  # fmt: skip
LENGTH = CHUNK + 9
TAPS = (1, 2)


@pytest.fixture(scope="module")
def target() -> Target:
    torch.manual_seed(0)
    made = Target(SHAPE)
    for weight in made.parameters():
        weight.data += 0.1 * torch.randn_like(weight)
        weight.data = weight.bfloat16().float()
    return made.requires_grad_(False)


@pytest.fixture(scope="module")
def ids() -> Tensor:
    return torch.randint(2, SHAPE.vocab_size, (2, LENGTH), generator=torch.Generator().manual_seed(1))


def test_chunks_and_their_gradient_equal_the_recurrence() -> None:
    generator = torch.Generator().manual_seed(2)
    q, k, v = (torch.randn(3, 2, 16, 8, generator=generator, dtype=torch.float64) for _ in range(3))
    beta, g = (torch.rand(3, 2, 16, generator=generator, dtype=torch.float64) for _ in range(2))
    inputs = [part.requires_grad_() for part in (q, k / k.norm(dim=-1, keepdim=True), v, beta, -g)]
    q, k, v, beta, g = inputs
    seeds, state = torch.randn(3, 32, 8, generator=generator, dtype=torch.float64), q.new_zeros(3, 8, 8)
    chunked, after = in_chunks(q, k, v, beta, g, state)
    expected, last = _recurrence([part.flatten(1, 2) for part in inputs], state)
    torch.testing.assert_close(chunked.flatten(1, 2), expected)
    torch.testing.assert_close(after, last)
    ours = torch.autograd.grad((chunked.flatten(1, 2) * seeds).sum() + after.sum(), inputs)
    torch.testing.assert_close(ours, torch.autograd.grad((expected * seeds).sum() + last.sum(), inputs))


def test_stepping_equals_one_forward(target: Target, ids: Tensor) -> None:
    cache, logits = target.new_cache(len(ids), LENGTH), []
    with torch.no_grad():
        for start, end in ((0, 11), (11, 12), (12, LENGTH - 1), (LENGTH - 1, LENGTH)):
            logits.append(target.step(ids[:, start:end], start, cache)[0])
        torch.testing.assert_close(torch.cat(logits, 1), target(ids), atol=1e-5, rtol=1e-5)


def test_logits_and_features_are_those_served(target: Target, ids: Tensor, tmp_path: Path) -> None:
    """In float32, within 1e-5 of the logits' scale."""
    write_target(SHAPE, target, tmp_path)
    expected, served = target(ids), load_target(tmp_path)
    blocks = -(-LENGTH // BLOCK_SIZE)
    rows = span_at(tables([blocks] * 2, blocks), [0, 0], LENGTH)
    hidden, features = forward(served, ids, rows, poisoned_states(served, 2 * blocks + 1), TAPS)
    torch.testing.assert_close(served.logits(hidden), expected, atol=1e-5 * float(expected.abs().max()), rtol=0)
    streams = target.residuals(ids)
    torch.testing.assert_close(features, torch.cat([streams[tap] for tap in TAPS], -1), atol=1e-4, rtol=1e-4)


def test_logits_are_those_of_transformers(target: Target, ids: Tensor, tmp_path: Path) -> None:
    """In float32, within 1e-5 of the logits' scale."""
    write_target(SHAPE, target, tmp_path)
    model = importlib.import_module("transformers").AutoModelForCausalLM
    reference, told = model.from_pretrained(tmp_path, output_loading_info=True)
    expected = target(ids)
    with torch.no_grad():
        got = reference.float().eval()(ids).logits
    assert not any(told.values()), f"the file holds other tensors than transformers reads: {told}"
    torch.testing.assert_close(got, expected, atol=1e-5 * float(expected.abs().max()), rtol=0)


@pytest.mark.parametrize("shape", [(24, 48), (48, 24)], ids=["wide", "tall"])
def test_matrices_of_a_shape_move_as_those_of_torch(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(3)
    ours = [torch.randn(shape, generator=generator) for _ in range(2)]
    theirs = [weight.clone() for weight in ours]
    muon, reference = Muon(ours), torch.optim.Muon(theirs, lr=0.02, weight_decay=0.01, momentum=0.95)
    for _ in range(3):
        for own, other in zip(ours, theirs, strict=True):
            other.grad = torch.randn(shape, generator=generator)
            own.grad = other.grad.clone()
        muon.step(0.02)
        reference.step()
    for own, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own, other, atol=1e-3, rtol=0)


def test_one_row_moves_the_state_as_the_recurrence() -> None:
    generator = torch.Generator().manual_seed(4)
    q, k, v = (torch.randn(3, 1, 8, generator=generator) for _ in range(3))
    beta, g, state = torch.rand(3, 1, generator=generator), -torch.rand(3, 1, generator=generator), torch.rand(3, 8, 8)
    expected, last = _recurrence([q, k, v, beta, g], state)
    torch.testing.assert_close(one_row(q, k, v, beta, g, state), expected)
    torch.testing.assert_close(state, last)


def _recurrence(inputs: list[Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
    """The same token by token, with a gradient."""
    q, k, v, beta, g = inputs
    reads = []
    for row in range(q.shape[1]):
        state = state * g[:, row].exp()[:, None, None]
        missing = (v[:, row] - (k[:, row, None] @ state)[:, 0]) * beta[:, row, None]
        state = state + k[:, row, :, None] * missing[:, None]
        reads.append((q[:, row, None] @ state)[:, 0])
    return torch.stack(reads, 1), state
