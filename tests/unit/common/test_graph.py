"""Captures on the CPU: a moved or reshaped tensor is a recapture (invariant I4)."""

import pytest
import torch

from services.common.graph import Counters, StepGraphs


def test_replay_runs_the_step_on_the_static_tensors() -> None:
    source, result = torch.zeros(4), torch.zeros(4)
    graphs = StepGraphs("cpu")

    def double() -> None:
        result.copy_(source * 2)

    graphs.capture("double", double, [source, result])
    source.fill_(3.0)
    graphs.replay("double")
    assert result.tolist() == [6.0] * 4
    assert graphs.counters == Counters(captures=1, replays=1)


def test_a_moved_tensor_counts_as_recapture_and_reallocation() -> None:
    tensor = torch.zeros(4)
    graphs = StepGraphs("cpu")
    graphs.capture(("verify", 1), lambda: None, [tensor])
    tensor.data = torch.zeros(4)
    graphs.replay(("verify", 1))
    graphs.replay(("verify", 1))
    assert graphs.counters == Counters(captures=1, replays=2, recaptures=1, reallocations=1)


def test_a_reshaped_tensor_counts_as_recapture() -> None:
    tensor = torch.zeros(4)
    graphs = StepGraphs("cpu")
    graphs.capture("step", lambda: None, [tensor])
    tensor.data = tensor.data.view(2, 2)
    graphs.replay("step")
    assert graphs.counters == Counters(captures=1, replays=1, recaptures=1)


def test_an_eager_step_runs_once_for_each_replay() -> None:
    ran: list[int] = []
    graphs = StepGraphs("cpu", eager=True)
    graphs.capture("step", lambda: ran.append(1), [])
    graphs.replay("step")
    graphs.replay("step")
    assert len(ran) == 3 and graphs.counters == Counters(captures=1, replays=2)


def test_an_uncaptured_step_is_refused() -> None:
    with pytest.raises(KeyError):
        StepGraphs("cpu").replay("nothing")
