"""A peer's side of the race: a process of its own for each K, out of a folder that is no part of this project."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.gpu.race import worker
from tests.bench.gpu.race.plan import LEAD_S, PROMPT, SCHEDULES, SGLANG, Job, Leg, repeats_of
from tests.bench.gpu.race.rows import Measured, Repeat
from tests.bench.gpu.rig import RigSettings
from tests.bench.gpu.shapes import expected_tokens, rates_of
from tests.support.tiny_checkpoints import write_configs

_STARTS_AND_RUNS_S = 900
QUIET = {
    "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1", "VLLM_USE_FLASHINFER_SAMPLER": "0", "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo", "SGLANG_HOST_IP": "127.0.0.1", "HOST_IP": "127.0.0.1",
}  # fmt: skip
"""Nothing is fetched or reported; greedy decoding needs no sampler of another library."""

ROUTED = ("qwen3_moe",)
"""Families whose rows choose experts."""


@dataclass(frozen=True)
class PeerOptions:
    """Where a peer is, which Python runs it, and its share of the GPU's memory."""

    folder: Path
    python: str = sys.executable
    memory_fraction: float = 0.6


def order_of(leg: Leg, settings: RigSettings, folder: Path, memory_fraction: float) -> dict[str, Any]:
    """Return what a process of a peer is told: models, K, the profile cut to K, and loads."""
    models = write_configs(folder / "models", settings.shape, settings.family, settings.changes)
    first = leg.jobs[0]
    rates = rates_of(SCHEDULES[first.profile], settings.widths[-1]) if first.profile else ()
    k = first.k or 0
    return {
        "peer": leg.side,
        "target": str(models.target),
        "drafter": str(models.drafter),
        "k": k,
        "rates": [*rates, *[0.0] * k][:k],
        "vocab": settings.shape.vocab,
        "prompt": PROMPT,
        "slots": settings.slots,
        "context": settings.context_limit,
        "memory_fraction": memory_fraction,
        "jobs": [_load_of(job) for job in leg.jobs],
        "lead_s": LEAD_S,
    }


def _load_of(job: Job) -> dict[str, Any]:
    repeats = repeats_of(job.concurrency)
    return {"out": job.out, "concurrency": job.concurrency, "seconds": job.seconds, "repeats": repeats}


def peer_leg(leg: Leg, settings: RigSettings, options: PeerOptions) -> tuple[str, list[Measured]]:
    """Start a peer and run the leg's jobs in order; return its version too.

    Raises:
        subprocess.SubprocessError: it failed or took too long; its own words are on stderr.
    """
    with tempfile.TemporaryDirectory(prefix="vl") as name:
        folder = Path(name)
        order, answer = folder / "order.json", folder / "answer.json"
        told = order_of(leg, settings, folder, options.memory_fraction)
        order.write_text(json.dumps(told))
        environment = {**QUIET, **os.environ, "PYTHONPATH": str(options.folder)}
        if settings.family in ROUTED:
            # Made-up weights may send all rows to a few experts, whose bytes are few: routes are drawn instead.
            environment["VLLM_MOE_ROUTING_SIMULATION_STRATEGY"] = "uniform_random"
        if leg.side == SGLANG and told["k"]:
            # SGLang has no rates by position: each step brings the floor or the ceiling of a mean.
            environment["SGLANG_SIMULATE_ACC_LEN"] = str(expected_tokens(tuple(told["rates"]), told["k"] + 1))
        command = [options.python, str(worker.__file__), str(order), str(answer)]
        subprocess.run(command, env=environment, check=True, stdout=sys.stderr, timeout=_STARTS_AND_RUNS_S)
        return answered(json.loads(answer.read_text()))


def answered(answer: dict[str, Any]) -> tuple[str, list[Measured]]:
    """Return what a process of a peer has written."""
    measured = [
        Measured(
            tuple(Repeat(**repeat) for repeat in job["repeats"]),
            tuple(tuple((at, count) for at, count in stream) for stream in job["streams"]),
        )
        for job in answer["measured"]
    ]
    return answer["version"], measured
