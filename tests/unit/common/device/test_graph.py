"""Captures on the CPU: a moved or reshaped tensor is a recapture (invariant I4)."""

import time

import pytest
import torch

from services.common.device.graph import Counters, StepGraphs


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


def test_what_comes_before_a_recording_is_all_that_runs_where_nothing_is_recorded() -> None:
    ran: list[str] = []
    graphs = StepGraphs("cpu")
    graphs.capture("step", lambda: ran.append("whole"), [], before=lambda: ran.append("less"))
    assert ran == ["less"]
    graphs.replay("step")
    assert ran == ["less", "whole"]


def test_an_uncaptured_step_is_refused() -> None:
    with pytest.raises(KeyError):
        StepGraphs("cpu").replay("nothing")
    with pytest.raises(KeyError):
        StepGraphs("cpu").renew("nothing")


def test_a_renewed_step_is_captured_again() -> None:
    ran: list[int] = []
    graphs = StepGraphs("cpu")
    graphs.capture("step", lambda: ran.append(1), [torch.zeros(2)])
    graphs.renew("step")
    graphs.replay("step")
    assert len(ran) == 3 and graphs.counters == Counters(captures=2, replays=1)


def test_the_cost_of_captures_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = StepGraphs("cpu")
    for name in ("first", "second"):
        graphs.capture(name, lambda: time.sleep(0.01), [])
    graphs.settle()
    assert graphs.cost.seconds >= 0.02
    assert graphs.cost.held_bytes == 0
    parts = [((0, 0), 5), ((0, 7), 20), ((0, 7), 300), ((0, 8), 4000)]
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 7))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(
        torch.cuda, "memory_snapshot", lambda: [{"segment_pool_id": pool, "total_size": size} for pool, size in parts]
    )
    on_gpu = StepGraphs("cuda")
    on_gpu.settle()
    assert on_gpu.cost.held_bytes == 320
