"""Targets of other families than the embedded pair's as real processes, with a drafter of n-gram drafts."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from tests.integration.pair import PairProcesses
from tests.integration.test_pair import plain, requests, running
from tests.lossless.gate import FAMILIES
from tests.support.session_client import SessionClient
from tests.support.tiny_checkpoints import write_tiny

NO_CONTEXT = ("--drafter-model", "none")
NGRAM = ("--proposer", "ngram")
CACHED = {"r0": 0, "r1": 16, "r2": 16, "r3": 32}
"""Whole blocks of prompts of 7, 18, 29 and 40 tokens."""


async def test_drafts_leave_text_alone(tmp_path: Path, full: bool) -> None:
    """A hybrid by default: the lossless gate has all families, in one process."""
    for family in [*FAMILIES, "qwen3_5"] if full else ["qwen3_5"]:
        await drafts_leave_text_alone(family, tmp_path / family)


async def drafts_leave_text_alone(family: str, tmp_path: Path) -> None:
    # Texts of smaller weights repeat themselves, which n-gram drafts need.
    models = write_tiny(tmp_path, seed=3, family=family, std=0.15)
    with tempfile.TemporaryDirectory(prefix="pl-") as folder:
        async with running(PairProcesses(Path(folder), models, NO_CONTEXT, drafter_flags=NGRAM)) as pair:
            frames = requests(4, 48)
            expected = await plain(pair, frames)
            async with SessionClient(pair.bound["grpc"]) as client:
                for frame in frames:
                    await client.start(frame)
                for name, received in client.requests.items():
                    end = await received.ended()
                    assert end.speculation.drafted > 0
                    assert received.tokens == expected[name]
                    assert end.usage.cached_tokens == CACHED[name], "found as its twin left it, state included"
            state = await asyncio.to_thread(pair.describe)
            assert (state.attachment, state.drafter.proposer) == ("attached", "ngram")
            assert sum(each.accepted for each in state.rounds) > 0
            assert (state.graphs.recaptures, state.graphs.reallocations) == (0, 0)
