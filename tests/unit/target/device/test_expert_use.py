"""Reads of experts are counted where they lay, and the most used cold ones change places with the least used others."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from services.common.model.spec import Experts, LayerSpec
from services.common.model.weights.expert_memory import ColdExperts, held, new_experts, stack_of
from services.common.model.weights.ffn_weights import ExpertWeights, read_ffn
from services.target.device.expert_use import EVERY, MOST, WORTH, ExpertUse, best_exchanges
from tests.lossless.rig import Rig, RigSettings
from tests.support.tiny_checkpoints import write_tiny

HIDDEN, INNER, COUNT = 8, 4, 5
NUMBERS = 3 * HIDDEN * INNER


def layer(resident: int, seed: int = 0) -> ExpertWeights:
    """Experts of which each has a number of its own in all places."""
    like = torch.zeros(16, HIDDEN)
    (gate_up, down), cold = new_experts(COUNT, resident, ((2 * INNER, HIDDEN), (HIDDEN, INNER)), like)
    for index in range(COUNT):
        for number, stack in enumerate((gate_up, down)):
            stack_of(index, stack, cold.host[number] if cold else None).fill_(seed + index)
    return ExpertWeights(like, gate_up, down, torch.zeros(COUNT, dtype=torch.int32), cold=cold)


def values(own: ExpertWeights) -> list[float]:
    """What lies at the place of each expert."""
    assert own.cold is not None
    places = [*own.cold.device[0], *own.cold.host[0]]
    return [float(places[place].unique()) for place in own.cold.place_E]


def rounds(use: ExpertUse, count: int) -> None:
    for _ in range(count):
        use.round()


def test_reads_are_told_where_experts_lay_when_they_were_read() -> None:
    """Of the three cold ones the last is read most; the reads behind its exchange are no cold ones."""
    own = layer(resident=2)
    use = ExpertUse([own])
    own.uses_E.add_(100)
    use.begin()
    own.uses_E.add_(torch.tensor([10, 0, 1, 0, 20], dtype=torch.int32))
    rounds(use, EVERY + 1)
    assert (use.visits, use.exchanges) == ({"device": 10, "host": 21}, 1)
    assert use.read_bytes == {memory: 4 * NUMBERS * count for memory, count in use.visits.items()}
    assert own.cold is not None
    assert [own.cold.is_cold(expert) for expert in range(COUNT)] == [False, True, True, True, False]
    own.uses_E.add_(torch.tensor([0, 3, 0, 0, 50], dtype=torch.int32))
    rounds(use, EVERY + 1)
    assert (use.visits, use.exchanges) == ({"device": 60, "host": 24}, 1)


def test_experts_keep_their_weights_wherever_they_go() -> None:
    layers = [layer(resident=2), layer(resident=2, seed=10)]
    use, generator = ExpertUse(layers), torch.Generator().manual_seed(3)
    for _ in range(12):
        for own in layers:
            own.uses_E.add_(torch.randint(0, 60, (COUNT,), generator=generator, dtype=torch.int32))
        rounds(use, EVERY + 1)
        assert [values(own) for own in layers] == [[0, 1, 2, 3, 4], [10, 11, 12, 13, 14]]
    assert use.exchanges > 5
    assert sum(use.visits.values()) == sum(int(own.uses_E.sum()) for own in layers)


def test_sums_that_go_round_are_counted_on() -> None:
    own = layer(resident=COUNT)
    use = ExpertUse([own])
    for sum_, expected in (((1 << 31) - 1, (1 << 31) - 1), (-(1 << 31) + 4, (1 << 31) + 4)):
        own.uses_E[3] = sum_
        rounds(use, EVERY + 1)
        assert use.visits == {"device": expected, "host": 0}


def test_nothing_is_read_between_readings_and_nothing_moves_that_is_not_worth_it() -> None:
    own = layer(resident=2)
    use = ExpertUse([own])
    own.uses_E.add_(torch.tensor([7, 9, 7 + WORTH - 1, 0, 0], dtype=torch.int32))
    rounds(use, EVERY)
    assert use.visits == {"device": 0, "host": 0}
    rounds(use, 1)
    assert (use.visits["host"], use.exchanges) == (7 + WORTH - 1, 0)


def test_the_exchanges_that_save_most_come_first() -> None:
    uses_LE = torch.tensor([[1, 30, 2, 40], [0, 5, 99, 4]])
    cold_LE = torch.tensor([[False, True, False, True], [False, False, True, True]])
    assert best_exchanges(uses_LE, cold_LE, 9) == [(1, 2, 0), (0, 3, 0), (0, 1, 2)]
    assert best_exchanges(uses_LE, cold_LE, 2) == [(1, 2, 0), (0, 3, 0)]
    wide = torch.arange(4 * MOST)[None]
    assert len(best_exchanges(wide, wide >= 2 * MOST, MOST)) == MOST


@pytest.mark.parametrize("stacked", [False, True])
def test_experts_of_both_layouts_of_files_find_their_places(stacked: bool) -> None:
    names = {f"mlp.experts.{part}": number for number, part in enumerate(("gate_up_proj", "down_proj"))}
    shapes = ((COUNT, 2 * INNER, HIDDEN), (COUNT, HIDDEN, INNER))
    whole = [torch.arange(COUNT * 2 * NUMBERS // 3, dtype=torch.float32)[: shape[0] * shape[1] * shape[2]].view(shape)
             for shape in shapes]  # fmt: skip

    def read(name: str) -> Tensor:
        if name in names:
            return whole[names[name]]
        if name == "mlp.gate.weight":
            return torch.zeros(COUNT, HIDDEN)
        _, _, index, part, _ = name.split(".")
        both = whole[0][int(index)].chunk(2)
        return {"gate_proj": both[0], "up_proj": both[1], "down_proj": whole[1][int(index)]}[part]

    ffn = Experts(count=COUNT, top_k=2, inner=INNER, resident=3)
    own = read_ffn(ffn, read, stacked, read)
    assert isinstance(own, ExpertWeights)
    assert isinstance(own.cold, ColdExperts)
    for number, expected in enumerate(whole):
        assert torch.equal(torch.cat([own.cold.device[number], own.cold.host[number]]), expected)
    assert (own.expert_bytes, own.cold.nbytes) == (4 * NUMBERS, 2 * 4 * NUMBERS)


def test_a_budget_is_shared_by_layers_that_have_experts(tmp_path: Path) -> None:
    pair = write_tiny(tmp_path, family="qwen3_moe", changes={"mlp_only_layers": [1]})
    with Rig(pair.target, pair.drafter, RigSettings(slots=1, buckets=(1,))) as rig:
        spec = rig.runner.pool.model.spec
        uses = [int(own.uses_E.sum()) for own in rig.runner.pool.model.mixtures]
    assert uses == [0, 0, 0], "warm-up does not count"
    experts = [part.ffn for part in spec.layers if isinstance(part.ffn, Experts)]
    each = 3 * 3 * spec.hidden_size * experts[0].inner * 2
    small = held(spec, 2 * each + 5, 2)
    found: list[LayerSpec] = list(small.layers)
    assert [part.ffn.resident for part in found if isinstance(part.ffn, Experts)] == [2, 2, 2]
    assert held(spec, 6 * each, 2) == spec, "six are all"
