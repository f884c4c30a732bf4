"""What a token of context adds is measured on sequences of their own, and leaves nothing behind."""

from types import SimpleNamespace
from typing import cast

import pytest
import torch

from services.target import build_device
from services.target.device import context_cost
from services.target.device.context import Pool
from services.target.device.runner import Runner
from services.target.device.shapes import RunnerSettings
from services.target.device.steps import Steps
from services.target.scheduling.width.width import AdaptiveWidth
from services.target.settings import TargetSettings
from tests.lossless.pairs import made_up_pair
from tests.lossless.rig import Rig, RigSettings
from tests.unit.target.core.specs import GREEDY, prompt, request

SETTINGS = RigSettings(width=4, slots=3, buckets=(1, 2, 3))


def measured(rig: Rig, monkeypatch: pytest.MonkeyPatch, by_width: float) -> dict[int, float]:
    """By a clock for which a token of context takes `by_width` microseconds times the width."""
    pool, rows = rig.runner.pool, SETTINGS.slots

    def micros(device: torch.device, steps: Steps, bucket: int, width: int, kind: str) -> float:
        assert bucket == rows
        held = pool.state.block_table_SN[:rows]
        named = held[held > 0].tolist()
        assert len(set(named)) == len(named) > 0, "no two sequences share a block"
        assert max(named) <= pool.settings.blocks
        steps.run_verify(bucket, width, "greedy", kind)
        return 500.0 + by_width * width * float(pool.state.slots.length_S[:rows].sum())

    monkeypatch.setattr(context_cost, "_micros", micros)
    return rig.runner.context_micros()


def test_what_longer_contexts_take_is_divided_by_their_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = made_up_pair()
    with Rig(pair.target, pair.drafter, SETTINGS) as rig:
        assert measured(rig, monkeypatch, 0.25) == pytest.approx({1: 0.25, 4: 1.0})
        assert measured(rig, monkeypatch, -0.25) == {1: 0.0, 4: 0.0}, "no context makes a round cheaper"


@pytest.mark.parametrize("family", ["qwen3", "qwen3_5"])
def test_texts_and_slots_are_as_without_it(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = made_up_pair(family=family)
    specs = [request(f"r{index}", prompt(index, 20 + index), 24, GREEDY) for index in range(4)]
    with Rig(pair.target, pair.drafter, SETTINGS) as rig:
        expected = [one.tokens for one in rig.run(specs)]
    with Rig(pair.target, pair.drafter, SETTINGS) as rig:
        before = small(rig.runner.pool)
        assert set(measured(rig, monkeypatch, 0.25)) == {1, 4}
        assert all(torch.equal(one, other) for one, other in zip(before, small(rig.runner.pool), strict=True))
        assert [one.tokens for one in rig.run(specs)] == expected


def small(pool: Pool) -> list[torch.Tensor]:
    """Copies of what slots and published rows hold, and recurrent states."""
    slots, mapped = pool.state.slots, pool.mapped
    held = [slots.length_S, slots.active_S, pool.state.block_table_SN, mapped.rows_B, *pool.states.tensors[1:]]
    return [tensor.clone() for tensor in held]


def test_without_room_for_contexts_nothing_is_measured() -> None:
    pair = made_up_pair()
    with Rig(pair.target, pair.drafter, RigSettings(width=4, context_limit=8, slots=3, buckets=(1, 2, 3))) as rig:
        assert rig.runner.context_micros() == {1: 0.0, 4: 0.0}


@pytest.mark.parametrize(("device", "added"), [("cuda", 50.0), ("cpu", 0.0)])
def test_a_gpu_s_choice_of_the_width_knows_it(device: str, added: float) -> None:
    """Times of a CPU vary by more than contexts of its models add."""
    micros = {(1, 1): 100.0, (1, 4): 120.0}
    shapes = cast(RunnerSettings, SimpleNamespace(every_width=(1, 4), buckets=(1,)))
    runner = cast(Runner, SimpleNamespace(context_micros=lambda: {1: 0.5, 4: 0.5}))
    policy, costs = build_device._policy(TargetSettings(model="m", device=device), shapes, micros, runner)
    assert isinstance(policy, AdaptiveWidth)
    assert policy.costs.cost(1, 4, 100) - costs()[1, 4] == added
