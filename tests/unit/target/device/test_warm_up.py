"""What a round costs is measured with rows that choose different experts, and leaves nothing behind.

Before, kernels are compiled ahead, once for all starts that keep what was compiled.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from services.common.device.graph import StepGraphs
from services.common.model import Target
from services.target.device import steps as device_steps
from services.target.device import warm_up
from tests.lossless.pairs import made_up_pair
from tests.lossless.rig import Rig, RigSettings
from tests.unit.target.core.specs import GREEDY, prompt, request

SETTINGS = RigSettings(width=4, slots=3, buckets=(1, 2, 3))


def measured(family: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Rig, list[tuple[int, list[int], int]]]:
    """A rig, and of each round that was measured its rows, their tokens, and how many rows were no padding."""
    forward, measure, seen, watched = Target.forward, warm_up._measure, [], [False]

    def watches(*arguments: Any) -> int:
        watched[0] = True
        cost = measure(*arguments)
        watched[0] = False
        return cost

    def tells(model: Target, ids_T: Tensor, rows: Any, *rest: Any) -> Any:
        if watched[0]:
            seen.append((len(ids_T), ids_T.tolist(), int((rows.slots_T >= rows.first_slot).sum())))
        return forward(model, ids_T, rows, *rest)

    monkeypatch.setattr(warm_up, "_measure", watches)
    monkeypatch.setattr(Target, "forward", tells)
    pair = made_up_pair(family=family)
    return Rig(pair.target, pair.drafter, SETTINGS), seen


@pytest.mark.parametrize("family", ["qwen3_moe", "qwen3_5_moe"])
def test_rows_differ_where_there_are_experts(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rig, seen = measured(family, monkeypatch)
    with rig:
        assert {count for count, _, _ in seen} == {1, 2, 3, 4, 8, 12}
        for count, ids, live in seen:
            assert live == count
            assert len(set(ids)) > 0.7 * count
        assert min(min(ids) for _, ids, _ in seen) >= 0
        pool = rig.runner.pool
        assert not pool.state.block_table_SN.any()
        assert not pool.state.slots.anchor_S.any()
        assert not any(tensor.any() for tensor in pool.states.tensors[1:])


def test_rows_are_padding_where_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, seen = measured("qwen3", monkeypatch)
    with rig:
        assert {live for _, _, live in seen} == {0}


@pytest.mark.parametrize("family", ["qwen3_moe", "qwen3_5_moe"])
def test_texts_are_as_without_it(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = made_up_pair(family=family)
    specs = [request(f"r{index}", prompt(index, 20 + index), 24, GREEDY) for index in range(4)]
    with Rig(pair.target, pair.drafter, SETTINGS) as rig:
        texts = [one.tokens for one in rig.run(specs)]
    monkeypatch.setattr(warm_up, "_measure", lambda *arguments: 1)
    with Rig(pair.target, pair.drafter, SETTINGS) as rig, torch.inference_mode():
        assert [one.tokens for one in rig.run(specs)] == texts


@pytest.mark.parametrize(("threads", "cached", "compiles"), [(16, False, True), (16, True, False), (1, False, False)])
def test_kernels_are_compiled_ahead_where_no_earlier_start_has(
    threads: int, cached: bool, compiles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []

    def compile_steps(runs: Sequence[Callable[[], object]], threads: int) -> None:
        asked.append((len(runs), threads))

    pair = made_up_pair()
    with Rig(pair.target, pair.drafter, SETTINGS) as rig:
        monkeypatch.setattr(device_steps, "compile_steps", compile_steps)
        monkeypatch.setattr(StepGraphs, "compiles", True)
        monkeypatch.setattr(StepGraphs, "aside", lambda graphs: nullcontext())
        steps = rig.runner.steps
        steps.compile_ahead(threads, cached)
        assert asked == ([(steps.graphs.counters.captures, threads)] if compiles else [])
        assert (steps.graphs.brief is not None) == (threads > 1), "one run is enough where nothing is left to compile"
