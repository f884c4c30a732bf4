"""Prompts packed into one forward leave the K/V and say the text of prompts computed one by one, to the bit."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import count

import pytest
import torch
from torch import Tensor

from services.common.request.sampling import StopParams
from services.target.build_device import Worker
from services.target.core.plan import Plan
from services.target.core.request import RequestSpec
from services.target.core.round import RoundOutput
from services.target.device.packing import Pack, packed
from services.target.device.steps import Steps
from tests.gpu.workers import tiny_worker
from tests.kernels.gpu.devices import DEVICE, INTERPRETED
from tests.unit.target.core.specs import GREEDY, PROCESSED, SAMPLED, prompt, request

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
SLOTS, TOKENS = 16, 24
LENGTHS = (1, 15, 16, 17, 63, 64, 65, 127, 128, 200, 300, 500, 5, 700, 33, 450)
"""Around the ends of blocks and of segments, and longer than a round's chunk."""
LONG = tuple(range(800, 900, 6))[:SLOTS]
"""Several packs of them are full, while those of the first one decode."""


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with tiny_worker(slots=SLOTS, prefix_cache=False) as made:
        yield made


def burst(lengths: Sequence[int] = LENGTHS) -> list[RequestSpec]:
    """Every kind of sampling, some with log-probabilities."""
    kinds, stopping = (GREEDY, SAMPLED, PROCESSED), StopParams(max_tokens=TOKENS, ignore_eos=True)
    return [
        request(f"p{n}", prompt(40 + n, length), 1, kinds[n % 3], stopping=stopping, logprobs=n % 2 or None)
        for n, length in enumerate(lengths)
    ]


class Course:
    """What requests said, the K/V of their prompts, and the packs that they ran in."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.said: dict[str, list[object]] = {}
        self.kept: dict[str, Tensor] = {}
        self.together: list[int] = []
        self._blocks: dict[int, tuple[RequestSpec, tuple[int, ...]]] = {}

    def run(self, specs: Sequence[RequestSpec], step_s: float = 0.0) -> Course:
        """Adds all, and runs rounds until none is left, as the engine does; each takes so long by the clock."""
        runner, scheduler = self._worker.runner, self._worker.scheduler
        for spec in specs:
            self.said[spec.request_id] = []
            scheduler.add(spec, None, 0.0)
        flights: deque[tuple[Plan, RoundOutput]] = deque()
        for turn in count():
            plan = scheduler.plan(turn * step_s, speculate=False)
            if not plan.empty:
                runner.prepare(plan)
                runner.publish()
                flights.append((plan, runner.launch(plan, drafted=False)))
                self._note(plan)
            if not flights:
                break
            if plan.empty or len(flights) > runner.look_ahead:
                launched, output = flights.popleft()
                for news in scheduler.commit(launched, output.land(), 0.0).progress:
                    logprobs = [entry.chosen for entry in news.logprobs or ()]
                    self.said[news.request.spec.request_id] += [*news.tokens, *logprobs]
        return self

    def _note(self, plan: Plan) -> None:
        """Copies the K/V of prompts behind their last chunk, before another request may have their blocks."""
        pool = self._worker.runner.pool
        self._blocks |= {one.slot: (one.spec, one.blocks) for one in plan.admissions}
        packs = packed(plan.chunks, pool.settings.packs)
        self.together += [len({segment.slot for segment in pack.segments}) for pack in packs]
        for chunk in plan.chunks:
            if chunk.last:
                spec, blocks = self._blocks[chunk.slot]
                caches = (pool.states.tensors[0], pool.draft_kv)
                flat = [kv[:, :, list(blocks)].flatten(2, 3)[:, :, : len(spec.token_ids)] for kv in caches]
                self.kept[spec.request_id] = torch.cat([part.flatten(3).flatten(0, 1) for part in flat])


@pytest.fixture(scope="module")
def alone(worker: Worker) -> Course:
    course = Course(worker)
    for spec in burst():
        course.run([spec])
    assert set(course.together) == {1}
    return course


def test_text_is_that_of_prompts_one_by_one(worker: Worker, alone: Course) -> None:
    together = Course(worker).run(burst())
    assert max(together.together) >= (8 if DEVICE == "cuda" else 3)
    assert together.said == alone.said


def test_keys_and_values_are_those_of_prompts_one_by_one(worker: Worker, alone: Course) -> None:
    together = Course(worker).run(burst()[::-1])
    for name, kept in alone.kept.items():
        if DEVICE == "cuda":
            assert torch.equal(together.kept[name], kept), name
        else:
            assert torch.allclose(together.kept[name], kept, atol=1e-4), name


def test_text_is_that_of_prompts_one_by_one_where_rows_are_computed_beside_packs(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock on which no row pauses."""
    beside: list[int] = []
    prefill = Steps.run_prefill

    def counted(steps: Steps, pack: Pack, rows: int = 0) -> None:
        beside.extend([rows] * (rows > 0))
        prefill(steps, pack, rows)

    monkeypatch.setattr(Steps, "run_prefill", counted)
    together, alone = Course(worker).run(burst(LONG), 1.0), Course(worker)
    assert len(beside) >= 2 and min(beside) >= 3
    for spec in burst(LONG):
        alone.run([spec])
    assert together.said == alone.said


def test_a_burst_captures_nothing(worker: Worker, alone: Course) -> None:
    before = worker.graphs
    Course(worker).run(burst())
    after = worker.graphs
    assert (after.captures, after.recaptures, after.reallocations) == (before.captures, 0, 0)
