"""Launching a round never makes the host wait for the device, whatever the round holds (docs/adr/0010)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from services.common.request.sampling import StopParams
from services.target.build_device import Worker
from services.target.core.plan import Plan
from services.target.core.request import RequestSpec
from services.target.core.round import RoundOutput
from tests.gpu.workers import tiny_worker
from tests.kernels.gpu.devices import DEVICE, INTERPRETED
from tests.unit.target.core.specs import GREEDY, PROCESSED, SAMPLED, prompt, request

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
TOKENS = 40


@pytest.fixture
def worker() -> Iterator[Worker]:
    with tiny_worker(slots=4, widths=(1, 4), prefill_chunk=128) as made:
        yield made


@contextmanager
def no_waits() -> Iterator[None]:
    """An operation that would wait for the device raises."""
    if DEVICE != "cuda":
        yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def requests() -> list[RequestSpec]:
    """More than there are slots; prompts of several chunks, every kind of sampling, log-probabilities, stop ids."""
    stopping = StopParams(max_tokens=TOKENS, ignore_eos=True, stop_token_ids=(7, 8), min_tokens=TOKENS)
    kinds = (GREEDY, SAMPLED, PROCESSED)
    return [
        request(f"r{n}", prompt(n, 1 + 97 * n % 500), 1, kinds[n % 3], stopping=stopping, logprobs=n % 2 or None)
        for n in range(12)
    ]


def test_no_launch_waits_for_the_device(worker: Worker) -> None:
    runner, scheduler = worker.runner, worker.scheduler
    for spec in requests():
        scheduler.add(spec, None, 0.0)
    flights: deque[tuple[Plan, RoundOutput]] = deque()
    tokens = rounds = 0
    while True:
        plan = scheduler.plan(0.0, speculate=False)
        if not plan.empty:
            with no_waits():
                runner.prepare(plan)
                runner.publish()
                flights.append((plan, runner.launch(plan, drafted=False)))
            rounds += 1
        if not flights:
            break
        if plan.empty or len(flights) > runner.look_ahead:
            launched, output = flights.popleft()
            commit = scheduler.commit(launched, output.land(), 0.0)
            tokens += sum(len(progress.tokens) for progress in commit.progress)
    assert tokens == 12 * TOKENS
    assert rounds > 3 * TOKENS
    if DEVICE == "cuda":
        assert runner.look_ahead == 1
