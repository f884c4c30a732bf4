"""A pair with keys, values and rows in eight bits: served text, and where it says so."""

import asyncio
import tempfile
from pathlib import Path
from urllib.request import urlopen

import torch

from services.common.model import load_target
from services.common.model.states.states import SequenceStates
from tests.integration.pair import PairProcesses
from tests.integration.test_pair import plain, requests, running
from tests.support.packed_checkpoints import LAYOUTS, pack_checkpoint
from tests.support.session_client import SessionClient
from tests.support.tiny_checkpoints import write_tiny


async def test_text_is_the_same_with_drafts_and_the_target_says_what_it_keeps(tmp_path: Path) -> None:
    models, frames = write_tiny(tmp_path, seed=3, dtype=torch.bfloat16), requests(3, 40)
    pack_checkpoint(models.target, tmp_path / "twin", LAYOUTS["ct-int8"])
    flags = ["--kv-dtype", "int8", "--activations", "int8"]
    with tempfile.TemporaryDirectory(prefix="pl-") as folder:
        async with running(PairProcesses(Path(folder), models, flags)) as pair:
            expected = await plain(pair, frames)
            async with SessionClient(pair.bound["grpc"]) as client:
                for frame in frames:
                    await client.start(frame)
                for frame in frames:
                    end = await client.requests[frame.request_id].ended()
                    assert client.requests[frame.request_id].tokens == expected[frame.request_id]
                    assert end.speculation.drafted > 0
            state = await asyncio.to_thread(pair.describe)
            metrics = await asyncio.to_thread(
                lambda: urlopen(f"http://{pair.bound['metrics']}/metrics").read().decode()
            )
    spec = load_target(models.target).spec
    numerics = state.numerics
    assert (numerics.dtype, numerics.kv_dtype, numerics.activations) == ("float32", "int8", "int8")
    assert state.budget.target_token_bytes == SequenceStates.sizes(spec, 4, coded=True).per_token
    assert state.budget.target_token_bytes * 3 < SequenceStates.sizes(spec, 4).per_token
    assert 'dtype="int8"' in next(line for line in metrics.splitlines() if line.startswith("paceline_kv_dtype{"))
