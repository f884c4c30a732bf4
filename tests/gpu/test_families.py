"""Other families than the embedded pair's on a GPU with n-gram drafts: the same text, and transformers' numbers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from services.common.pb.paceline.v1 import types_pb2 as types
from tests.gpu.eager import EagerReference, Said
from tests.integration.pair import PairProcesses
from tests.integration.test_families import NGRAM, NO_CONTEXT
from tests.kernels.gpu.devices import DEVICE, INTERPRETED, WARM_S
from tests.support.session_client import SessionClient, start
from tests.support.tiny_checkpoints import TinyShape, write_tiny
from tests.unit.target.core.specs import prompt

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
SHAPE = TinyShape(hidden=128, inner=384, heads=8, kv_heads=2, head_dim=32, context=512)
# Texts pass the length that frequencies are stretched from.
ORIGINAL = {"factor": 8.0, "original_max_position_embeddings": 64}
SCALINGS: dict[str, dict[str, Any]] = {
    "llama": {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, **ORIGINAL},
    "qwen2": {"rope_type": "yarn", **ORIGINAL},
}
PROMPTS = tuple(prompt(seed, 5 + 9 * seed) for seed in range(6))
TOKENS = 160


@dataclass(frozen=True)
class Served:
    """A pair of processes and the folder of its target."""

    pair: PairProcesses
    model: Path
    dtype: str


@pytest.fixture(
    scope="module", params=[(family, dtype) for family in SCALINGS for dtype in ("float32", "bfloat16")], ids="-".join
)
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    family, dtype = request.param
    device = ("--device", DEVICE, "--dtype", dtype)
    with tempfile.TemporaryDirectory(prefix="pl") as name:
        folder = Path(name)
        changes = {"rope_scaling": SCALINGS[family]}
        models = write_tiny(
            folder / "m", 3, SHAPE, std=0.1, dtype=getattr(torch, dtype), family=family, changes=changes
        )
        started = PairProcesses(folder, models, (*device, *NO_CONTEXT), drafter_flags=(*device, *NGRAM))
        try:
            started.wait_ready(WARM_S)
            yield Served(started, models.target, dtype)
        finally:
            started.stop()


async def said(client: SessionClient, name: str, temperature: float, off: bool) -> tuple[list[Said], int]:
    """All prompts at once; what each became, and how many drafts were accepted."""
    client.rounds.clear()
    sampling, speculation = types.Sampling(temperature=temperature, seed=5), types.Speculation(off=off)
    streams = [
        await client.start(start(f"{name}-{i}", ids, TOKENS, sampling=sampling, speculation=speculation, logprobs=1))
        for i, ids in enumerate(PROMPTS)
    ]
    accepted = sum([(await stream.ended()).speculation.accepted for stream in streams])
    updates = [update for round_ in client.rounds for update in round_.updates]
    told = [
        [one.chosen.logprob for u in updates if u.request_id == f"{name}-{i}" for one in u.logprobs]
        for i in range(len(PROMPTS))
    ]
    return [Said(ids, stream.tokens, each) for ids, stream, each in zip(PROMPTS, streams, told, strict=True)], accepted


async def test_texts_and_numbers(served: Served) -> None:
    """In float32 drafts change no text; in bfloat16 every choice is as good as the exact one but for rounding."""
    reference = EagerReference(served.model, DEVICE)
    async with SessionClient(served.pair.bound["grpc"]) as client:
        for temperature in (0.0, 0.8):
            plain, none = await said(client, f"plain-{temperature}", temperature, off=True)
            drafted, accepted = await said(client, f"drafted-{temperature}", temperature, off=False)
            assert none == 0
            if served.dtype == "float32":
                assert [one.tokens for one in drafted] == [one.tokens for one in plain]
            if temperature == 0.0:
                assert accepted > 0
                for texts in (plain, drafted):
                    deviation = reference.deviation(texts)
                    print(served.model, served.dtype, deviation)
                    assert deviation.golden, deviation
    graphs = served.pair.describe().graphs
    assert (graphs.recaptures, graphs.reallocations) == (0, 0)
