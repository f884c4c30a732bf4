"""Launching a round never makes the host wait for the device, whatever the round holds (docs/adr/0010)."""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from services.common.request.sampling import StopParams
from services.target.build_device import Worker, build_worker
from services.target.core.plan import Plan
from services.target.core.request import RequestSpec
from services.target.core.round import RoundOutput
from services.target.settings import TargetSettings
from tests.bench.gpu.shapes import TINY
from tests.kernels.gpu.devices import DEVICE, INTERPRETED
from tests.support.tiny_checkpoints import write_configs
from tests.unit.target.core.specs import GREEDY, PROCESSED, SAMPLED, prompt, request

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
TOKENS = 40


@pytest.fixture
def worker() -> Iterator[Worker]:
    with tempfile.TemporaryDirectory(prefix="pl") as folder:
        pair = write_configs(Path(folder), TINY)
        made = build_worker(
            TargetSettings(
                model=str(pair.target),
                drafter_model=str(pair.drafter),
                drafter_address="unix:/nowhere",
                random_weights=True,
                device=DEVICE,
                dtype="bfloat16" if DEVICE == "cuda" else "float32",
                slots=4,
                context_limit=1024,
                memory_bytes=4 << 30,
                widths=(1, 4),
                prefill_chunk=128,
                adaptive=False,
            ),
            os.getpid(),
        )
        try:
            yield made
        finally:
            made.close()


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
