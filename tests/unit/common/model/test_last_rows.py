"""A forward of which some rows alone are read has their hidden states, and leaves and taps what all rows would."""

import pytest
import torch

from services.common.model import Target, load_target
from services.common.model.states.states import Rows
from tests.support.tiny_checkpoints import TinyShape, write_tiny
from tests.unit.common.model.pairs import BLOCK_SIZE, ids_like, span_at, tables

LENGTHS, VALID, WIDTH = [0, 5], [6, 3], 6


@pytest.fixture(scope="module", params=["qwen3", "qwen3_5_text", "gemma3_text"])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Target:
    pair = write_tiny(tmp_path_factory.mktemp("last"), 1, TinyShape(), std=0.25, family=request.param)
    return load_target(pair.target, torch.float64)


@pytest.mark.parametrize("last_is_tapped", [False, True])
def test_rows_that_are_read_are_those_of_the_whole_forward(target: Target, last_is_tapped: bool) -> None:
    last = len(target.spec.layers) - 1
    taps = (0, last) if last_is_tapped else (0,)
    read_E = torch.tensor([VALID[0] - 1, WIDTH + VALID[1] - 1])
    (every, streams, kept), (some, tapped, left) = (run(target, ends, taps) for ends in (None, read_E))
    # A CPU's products of fewer rows may round otherwise.
    torch.testing.assert_close(some, every[read_E], rtol=1e-12, atol=1e-12)
    assert len(tapped) == len(streams) == 2 * WIDTH
    assert torch.equal(tapped, streams)
    assert all(torch.equal(*pair) for pair in zip(kept, left, strict=True))


def run(
    target: Target, ends: torch.Tensor | None, taps: tuple[int, ...]
) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    """Hidden states, tapped streams, and what two prompts leave in the states of their sequences."""
    states = target.new_states(20, BLOCK_SIZE, slots=2, width=16)
    (part,) = span_at(tables([4, 4], 4), LENGTHS, WIDTH, VALID).parts
    hidden, streams = target.forward(ids_like(2 * WIDTH), Rows(part, ends=ends), states, taps)
    return hidden, streams, states.tensors
