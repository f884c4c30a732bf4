"""A captured step behind a gate: it starts when another stream writes the flag, or when the gate gives up."""

from __future__ import annotations

import time

import pytest
import torch

from services.common.device.graph import StepGraphs
from services.common.pair.arena.flags import FlagPair
from services.common.pair.flag_wait import FlagWait
from tests.kernels.gpu.devices import DEVICE, INTERPRETED

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
GENERATION, LIMIT_S = 3, 1.0


@pytest.fixture
def flags() -> torch.Tensor:
    return torch.zeros(16, dtype=torch.int64, device=DEVICE)


def held_step(flags: torch.Tensor) -> tuple[StepGraphs, torch.Tensor, torch.Tensor]:
    """A captured step that counts behind its gate; its stamp; the count."""
    stamp, count = torch.tensor([0, GENERATION], device=DEVICE), torch.zeros(1, dtype=torch.int64, device=DEVICE)
    gate = FlagWait(flags, "drafted", LIMIT_S)

    def step() -> None:
        gate.hold(stamp)
        count.add_(1)

    graphs = StepGraphs(DEVICE)
    graphs.capture("step", step, (stamp, count))
    torch.cuda.synchronize()
    count.zero_()
    return graphs, stamp, count


def test_another_stream_opens_it(flags: torch.Tensor) -> None:
    graphs, stamp, count = held_step(flags)
    stamp[0] = 5
    graphs.replay("step")
    done = torch.cuda.Event()
    done.record()
    time.sleep(0.05)
    assert not done.query(), "nobody has written the flag"
    start = time.monotonic()
    FlagPair(flags, GENERATION).release_target(5)
    done.synchronize()
    assert time.monotonic() - start < LIMIT_S / 2
    assert count.item() == 1


def test_a_round_behind_two_to_the_thirty_one_waits_for_a_fresh_word(flags: torch.Tensor) -> None:
    """A stream's wait, where a 32-bit word would count as reached."""
    pair, number = FlagPair(flags, GENERATION), 2**31 + 5
    pair.await_drafted(number)
    done = torch.cuda.Event()
    done.record()
    pair.release_target(number - 1)
    time.sleep(0.05)
    assert not done.query(), "nobody has written this round"
    pair.release_target(number)
    done.synchronize()
    assert flags[2 * GENERATION + 1].item() == number


def test_it_gives_up_after_its_time(flags: torch.Tensor) -> None:
    graphs, stamp, count = held_step(flags)
    stamp[0] = 5
    torch.cuda.synchronize()
    start = time.monotonic()
    graphs.replay("step")
    torch.cuda.synchronize()
    assert LIMIT_S * 0.9 < time.monotonic() - start < LIMIT_S * 2
    assert count.item() == 1
