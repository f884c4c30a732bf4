"""A fatal fault of the drafter on the GPU: by time slices the target goes on, under MPS, which shares it, it ends."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from deploy.stack import EMBEDDED, ServiceProcess
from services.common.pb.paceline.v1 import types_pb2 as types
from tests.bench.gpu.mps import Mps
from tests.integration.pair import PairProcesses
from tests.kernels.gpu.devices import DEVICE, INTERPRETED, WARM_S
from tests.support.session_client import SessionClient, start
from tests.support.tiny_checkpoints import TinyPair

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
PROMPT, TOKENS = [17, 300, 45, 9], 300
MODELS = TinyPair(EMBEDDED / "target", EMBEDDED / "drafter")
ENDED_S = 30.0
WATCHDOG_S = 5.0
"""Long enough for the fault to be seen as one: a drafter that is killed for being late has proved nothing."""
SMALL = ("--slots", "2", "--widths", "1,4", "--prefill-chunk", "128")
"""Few steps: what is tested has nothing to do with their shapes."""


class FaultingPair(PairProcesses):
    """The first drafter faults, those after it do not."""

    def add_drafter(self) -> int:
        if self.drafters:
            return super().add_drafter()
        command = ["tests.gpu.faulting_drafter", "--model", str(MODELS.drafter), "--grpc", f"unix:{self.folder}/d0"]
        self.drafters.append(ServiceProcess("drafter-0", [*command, *self._drafter_flags], self.folder, {}))
        return 0

    def exit_code(self, process: ServiceProcess, within_s: float = ENDED_S) -> int:
        """The exit code of a process that ends by itself; fails with both logs where it lives on."""
        with suppress(subprocess.TimeoutExpired):
            return process.process.wait(within_s)
        logs = f"{self.target.tail()}\n{self.drafters[0].tail()}"
        raise AssertionError(f"{process.name} lives on after {within_s} s\n{logs}")


@contextmanager
def faulting_pair() -> Iterator[FaultingPair]:
    device = ["--device", DEVICE]
    flags = [*device, *SMALL, "--watchdog-s", str(WATCHDOG_S)]
    with tempfile.TemporaryDirectory(prefix="pl") as folder:
        pair = FaultingPair(Path(folder), MODELS, flags, drafter_flags=device)
        try:
            pair.wait_ready(WARM_S)
            yield pair
        finally:
            pair.stop()


async def text(client: SessionClient, name: str, off: bool) -> tuple[list[int], float]:
    """Greedy text and tokens a round."""
    stream = await client.start(start(name, PROMPT, TOKENS, speculation=types.Speculation(off=off)))
    end = await stream.ended()
    return stream.tokens, TOKENS / max(1, end.speculation.rounds)


async def test_by_time_slices_the_target_survives() -> None:
    with faulting_pair() as pair:
        first = pair.describe().generation
        async with SessionClient(pair.bound["grpc"]) as client:
            plain, _ = await text(client, "plain", True)
            assert (await text(client, "faulting", False))[0] == plain
            pair.until(lambda: pair.describe().generation != first, "end of the attachment")
            assert pair.exit_code(pair.drafters[0]) > 0, "not by a signal"
            pair.turn_to(pair.add_drafter())
            pair.wait_attached(first + 1)
            again, tau = await text(client, "again", False)
        assert again == plain
        assert tau > 1.5


@pytest.mark.skipif(DEVICE != "cuda", reason="there is nothing to share")
async def test_under_mps_the_pair_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself, so that requests can move; what was said until then is right."""
    with Mps(True) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        with faulting_pair() as pair:
            assert pair.describe().handoff_mode == "flags_mps"
            async with SessionClient(pair.bound["grpc"]) as client:
                plain, _ = await text(client, "plain", True)
                stream = await client.start(start("faulting", PROMPT, TOKENS))
                assert await asyncio.to_thread(pair.exit_code, pair.target) > 0, "not by a signal"
                assert stream.tokens == plain[: len(stream.tokens)]
            assert pair.exit_code(pair.drafters[0]) > 0, "not by a signal"
