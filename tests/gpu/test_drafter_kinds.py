"""Every kind of drafter on a GPU: text is plain decoding's by flags and by messages, and a round allocates nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from services.common.pb.paceline.v1 import target_pb2 as pb
from services.common.pb.paceline.v1 import types_pb2 as types
from tests.gpu.memory import used_by_process, used_bytes
from tests.integration.pair import PairProcesses
from tests.kernels.gpu.devices import DEVICE, INTERPRETED, WARM_S
from tests.support.session_client import SessionClient, start
from tests.support.tiny_checkpoints import TinyShape
from tests.support.tiny_kinds import PAIRS
from tests.unit.target.core.specs import prompt

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
SHAPE = TinyShape(hidden=64, inner=128)
RECURRENT = {"linear_key_head_dim": 32, "linear_value_head_dim": 32}
"""Of a hybrid: heads for which there are kernels."""
WAYS = (("flags", "int8"), ("flags", "dtype"), ("host", "int8"))
"""Rounds that the devices' streams order and rounds that messages do, and what drafters' products read."""
REQUESTS, TOKENS = 6, 64


def _requests(turn: str, off: bool = False) -> list[pb.Start]:
    """Greedy and sampled ones in turn; every third begins as another one."""
    return [
        start(
            f"{turn}-{n}",
            (*prompt(n % 3, 40, SHAPE.vocab), *prompt(n, 7 + 11 * n, SHAPE.vocab)),
            TOKENS,
            sampling=types.Sampling(temperature=0.8, seed=n) if n % 2 else types.Sampling(),
            speculation=types.Speculation(off=off),
        )
        for n in range(REQUESTS)
    ]


async def _texts(client: SessionClient, turn: str, off: bool = False) -> tuple[list[list[int]], list[int]]:
    """What requests said, and how many drafts each had."""
    streams = [await client.start(frame) for frame in _requests(turn, off)]
    ends = [await stream.ended() for stream in streams]
    return [stream.tokens for stream in streams], [end.speculation.drafted for end in ends]


def _graphs(pair: PairProcesses) -> tuple[int, int, int]:
    graphs = pair.describe().graphs
    return graphs.captures, graphs.recaptures, graphs.reallocations


@pytest.mark.parametrize(("handoff", "weights"), WAYS)
@pytest.mark.parametrize("kind", sorted(PAIRS))
async def test_text_is_that_of_plain_decoding(kind: str, handoff: str, weights: str, tmp_path: Path) -> None:
    changes = {"changes": RECURRENT} if kind == "mtp" else {}
    models, own = PAIRS[kind](tmp_path, 3, SHAPE, **changes), ["--device", DEVICE, "--dtype", "bfloat16"]
    with tempfile.TemporaryDirectory(prefix="pl") as folder:
        target = [*own, "--handoff", handoff, "--drafter-weights", weights]
        pair = PairProcesses(Path(folder), models, target, drafter_flags=[*own, "--weights", weights])
        try:
            pair.wait_ready(WARM_S)
            pair.until(lambda: pair.describe().attachment == "attached", "attachment", WARM_S)
            assert pair.describe().drafter.proposer == kind.partition("-")[0]
            async with SessionClient(pair.bound["grpc"]) as client:
                plain, none = await _texts(client, "plain", off=True)
                first, drafted = await _texts(client, "first")
                await _texts(client, "second")  # kernels that this mix asks for are loaded now
                before, used, by_process = _graphs(pair), used_bytes(), used_by_process()
                again, _ = await _texts(client, "again")
                after, growth = _graphs(pair), used_bytes() - used
                grown = {pid: size - by_process.get(pid, 0) for pid, size in used_by_process().items()}
            names = {pair.target.process.pid: "target", pair.drafter.process.pid: "drafter"}
            told = {names.get(pid, str(pid)): size for pid, size in grown.items() if size}
            if names.keys() <= by_process.keys():  # company on the GPU is not the pair's
                growth = sum(grown.get(pid, 0) for pid in names)
            assert first == plain and again == plain
            assert max(none) == 0 and min(drafted) > 0
            assert after == before and before[1:] == (0, 0)
            # The driver gives a kernel that spills room for all threads of the device when it is first launched.
            assert growth <= 0, f"{growth} bytes more after the same requests again, by process {told}"
        finally:
            pair.stop()
