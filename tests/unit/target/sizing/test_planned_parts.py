"""A start of every family on a CPU: each tensor that it leaves belongs to a part of the plan, and fits there."""

import gc
import os
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from services.common.pair import attach
from services.target import build_device
from services.target.build_device import Worker, build_worker
from services.target.settings import TargetSettings
from tests.support.tiny_checkpoints import ARCHITECTURES, BESIDE, SHARED, TinyShape, write_configs

CHANGES = {"qwen3_next": SHARED, "gemma4_text": BESIDE}
FEW = ("qwen3", "qwen3_5_moe_text", "gemma4_text", "laguna")
"""One for each kind of layer; the others have the same."""
SHAPE = TinyShape(context=256)
OWN = 8 << 10
"""Bytes of counters, flags and numbers of rows, which grow with nothing that is large."""
Held = dict[int, torch.UntypedStorage]


def held() -> Held:
    """Everything that tensors lie in, by where it is; nothing else comes there while it is kept."""
    gc.collect()
    found = (one.untyped_storage() for one in gc.get_objects() if type(one) in (Tensor, torch.nn.Parameter))
    return {storage.data_ptr(): storage for storage in found if storage.nbytes()}


def within(what: object, seen: set[int], depth: int = 0) -> Iterator[Tensor]:
    """Tensors that an object of ours reaches by its fields."""
    if id(what) in seen or depth > 9:
        return
    seen.add(id(what))
    parts: list[object] = []
    if isinstance(what, Tensor):
        yield what
    elif isinstance(what, list | tuple | set):
        parts = [*what]
    elif isinstance(what, dict):
        parts = [*what.values()]
    elif is_dataclass(what):
        parts = [getattr(what, field.name) for field in fields(what)]
    elif type(what).__module__.startswith("services") and hasattr(what, "__dict__"):
        parts = [*vars(what).values()]
    for part in parts:
        yield from within(part, seen, depth + 1)


class Parts:
    """What a start holds, by part: each place belongs to the first part that reaches it."""

    def __init__(self, there: Held) -> None:
        self._left = {place: storage.nbytes() for place, storage in there.items()}
        self.sizes: dict[str, int] = {}

    def take(self, name: str, *owners: object) -> None:
        places = {one.untyped_storage().data_ptr() for owner in owners for one in within(owner, set())}
        self.sizes[name] = sum(self._left.pop(place, 0) for place in places)

    def take_those_of(self, name: str, there: Held) -> None:
        self.sizes[name] = sum(self._left.pop(place, 0) for place in there)

    @property
    def left(self) -> int:
        return sum(self._left.values())


def planned(worker: Worker) -> Mapping[str, int]:
    """Bytes by term of the plan, of all slots and all blocks."""
    budget = worker.budget
    terms, tokens = budget.terms, (budget.blocks + 1) * budget.block_size
    slots = {name: budget.slots * size for name, size in terms.per_slot.items()}
    return {**terms.fixed, **slots, **{name: tokens * size for name, size in terms.per_token.items()}}


def parts_of(worker: Worker, new: Held, loaded: Held) -> Parts:
    pool, parts, arena = worker.runner.pool, Parts(new), worker.arena
    noise = [arena.tensor(attach.NOISE)] if attach.NOISE in arena else []
    tables = [arena.tensor(name) for name in (attach.EMBED, attach.LM_HEAD) if name in arena]
    parts.take("noise", worker.runner._ring, *noise)
    parts.take("rotation", pool.model._tables, getattr(pool.context, "_table", None))
    parts.take("kv", pool.states.paged)
    parts.take("recurrent", pool.states.recurrent)
    parts.take("snapshots", getattr(pool.states._recurrent, "snapshots", None))
    parts.take("places", pool.states.places_N)
    parts.take("draft_kv", pool.draft_kv, pool.seeds)
    parts.take("weights", pool.model, pool.context, tables)
    parts.take_those_of("weights beside", loaded)
    parts.take("arena", arena)  # its tensors are views of one file
    parts.take("slots", pool.state)
    parts.take("steps", worker.runner.steps)
    large = {attach.EMBED, attach.LM_HEAD, attach.DRAFT_KV, attach.NOISE, attach.SEED}
    shared = [entry.name for entry in arena.layout().tensors if entry.name not in large]
    parts.sizes["slots"] += sum(arena.tensor(name).nbytes for name in shared)
    return parts


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Held:
    """What there is more once weights are loaded; filled by a start."""
    more: Held = {}
    before, open_context = held(), build_device._context

    def opened(*given: object) -> object:
        context = open_context(*given)  # type: ignore[arg-type]
        more.update({place: storage for place, storage in held().items() if place not in before})
        return context

    monkeypatch.setattr(build_device, "_context", opened)
    return more


@pytest.mark.parametrize(
    "family", [pytest.param(one, marks=[pytest.mark.whole] * (one not in FEW)) for one in ARCHITECTURES]
)
def test_every_tensor_of_a_start_belongs_to_a_part_of_the_plan(family: str, tmp_path: Path, loaded: Held) -> None:
    pair, before = write_configs(tmp_path, SHAPE, family, CHANGES.get(family, {})), held()
    settings = TargetSettings(
        model=str(pair.target), drafter_model=str(pair.drafter), drafter_address="unix:/nowhere", random_weights=True,
        slots=4, widths=(1, 4), context_limit=256, memory_bytes=4 << 20, adaptive=False, handoff="host",
    )  # fmt: skip
    worker = build_worker(settings, os.getpid())
    parts = parts_of(worker, {place: own for place, own in held().items() if place not in before}, loaded)
    plan, found = planned(worker), parts.sizes
    print(family, found, plan, parts.left)
    assert parts.left <= OWN, "what a start leaves is planned"
    assert found["kv"] == plan["target_kv"] + plan.get("window_kv", 0)
    assert found["recurrent"] == plan.get("target_states", 0) + plan.get("target_slot_states", 0)
    assert found["snapshots"] == plan.get("state_snapshots", 0)
    assert found["draft_kv"] == plan["draft_kv"]
    assert found["rotation"] == plan["rotation"]
    assert found["places"] <= plan.get("window_places", 0) and bool(found["places"]) == ("window_kv" in plan)
    assert plan["noise"] < found["noise"] <= plan["noise"] + plan["drafter_noise"] + plan["pad_slot"] + plan["noise"]
    assert found["slots"] <= plan["state"] + plan["pad_slot"] + plan["flags"] + OWN
    weights, told = found["weights"] + found["weights beside"], plan["target_weights"] + plan["context_weights"]
    assert told <= weights <= 1.5 * told, "a CPU keeps some products twice: as they were and as they are read"
    worker.close()
