"""Pairs and a gateway as real processes, announced by a fleet service of the test; what must hold after a fault."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from deploy.cluster.fleet_service import FleetService
from deploy.cluster.registry import PairEntry, Registry
from deploy.stack import ServiceProcess
from services.common.pb.paceline.v1 import fleet_pb2_grpc, inference_pb2, inference_pb2_grpc
from services.common.serving.channel import connect
from tests.faults.answers import Answer, Stream, request
from tests.faults.rest import Footprints, at_rest, defects_in, processes_of, scrape
from tests.integration.pair import ENVIRONMENT, PairProcesses
from tests.support.ports import free_port
from tests.support.tiny_checkpoints import TinyPair, write_tiny
from tests.support.warm import WarmProcess

WAIT_S = 240.0
LARGE_PROMPT = 100_000
PACE = "plan:pace=0.01"
SHAMEFUL = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)


class Fleet:
    """Pairs behind one gateway. If not alike, pair 0 drafts with its checkpoint, pair 1 from the text itself."""

    def __init__(self, folder: Path, models: TinyPair, flags: Sequence[str], points: str, alike: bool) -> None:
        self.pairs: dict[int, PairProcesses] = {}
        self.routes: dict[int, str] = {}
        self.gateway_flags: Sequence[str] = ()
        self.deadline_s = WAIT_S
        self.module = "services.target"
        """What runs as a target."""
        self.others: dict[int, TinyPair] = {}
        """What pairs serve that do not serve the fleet's checkpoints."""
        self._folder = folder
        self._models = models
        self._flags = flags
        self._points = points
        self._alike = alike
        self._starts = 0
        self._footprints = Footprints()
        self._expected: dict[tuple[int, int], Answer] = {}
        """What requests, by number and tokens, say without faults."""
        self._registry = Registry()
        self._server = grpc.aio.server()
        self._gateway: ServiceProcess | None = None
        self._channel: grpc.aio.Channel | None = None
        self.stub: Any = None
        self.gateway_address = ""

    async def start(self, pairs: int) -> None:
        """Starts everything and waits until all of it is ready."""
        fleet_pb2_grpc.add_FleetServiceServicer_to_server(FleetService(self._registry), self._server)
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        self._watch = f"127.0.0.1:{port}"
        for index in range(pairs):
            self._launch(index)
        self.start_gateway()
        for index in range(pairs):
            await self.wait_pair(index)
        await self.connect()

    def start_gateway(self, more: Sequence[str] = ()) -> None:
        """Starts a gateway process in place of the one before; `more` are flags in place of the fleet's own."""
        self._starts += 1
        flags = [
            "--watch",
            self._watch,
            "--tokenizer",
            str(self._models.target),
            "--propagation-s",
            "0.1",
            *(more or self.gateway_flags),
        ]
        name = f"gateway-{self._starts}"
        self._gateway = WarmProcess(name, ["services.gateway", *flags], self._folder, ENVIRONMENT)

    @asynccontextmanager
    async def another_gateway(self, more: Sequence[str] = ()) -> AsyncIterator[Any]:
        """The stub of a second gateway that knows all pairs, while the block runs; `more` are its flags."""
        first = self.gateway
        self.start_gateway(more)
        second, self._gateway = self.gateway, first
        try:
            bound = await asyncio.to_thread(second.bound, WAIT_S)
            await self.wait_routed(bound["metrics"])
            async with connect(bound["grpc"]) as channel:
                yield inference_pb2_grpc.InferenceServiceStub(channel)
        finally:
            await asyncio.to_thread(second.stop, 0.0)

    async def connect(self) -> None:
        """Connects to the present gateway."""
        assert self._gateway is not None
        if self._channel is not None:
            await self._channel.close()
        bound = await asyncio.to_thread(self._gateway.bound, WAIT_S)
        self.gateway_address = bound["grpc"]
        self._channel = connect(self.gateway_address)
        await self.wait_routed()
        self.stub = inference_pb2_grpc.InferenceServiceStub(self._channel)

    @property
    def tokenizer(self) -> Path:
        """The folder of the tokenizer that the gateway uses."""
        return self._models.target

    @property
    def gateway(self) -> ServiceProcess:
        """The present gateway process."""
        assert self._gateway is not None
        return self._gateway

    async def add_pairs(self, models: TinyPair, *indices: int) -> None:
        """Starts pairs of other checkpoints; every gateway learns of them when they are ready."""
        for index in indices:
            self.others[index] = models
            self._launch(index)
        for index in indices:
            await self.wait_pair(index)
        await self.wait_routed()

    async def replace_pair(self, index: int, points: str | None = None, flags: Sequence[str] = ()) -> None:
        """Starts a pair anew in place of the one before, which may be dead; the gateway learns of it when ready."""
        await asyncio.to_thread(self.pairs[index].stop)
        self._launch(index, points, flags)
        await self.wait_pair(index)
        await self.wait_routed()

    async def wait_routed(self, metrics: str = "") -> None:
        """Waits until the present gateway, or the one whose metrics are given, knows all pairs as ready."""
        page, count = metrics or self.gateway.bound(WAIT_S)["metrics"], len(self.pairs)
        await self.until(lambda: scrape(page).get("paceline_gateway_ready_targets") == count, "a route to every pair")

    async def wait_pair(self, index: int) -> None:
        """Waits for a pair and announces all that run."""
        await asyncio.to_thread(self.pairs[index].wait_ready)
        await self.announce()

    async def announce(self) -> None:
        """Announces every pair that runs, at the address in `routes` where there is one."""
        entries = [
            PairEntry(f"pair-{each}", self.routes.get(each, pair.bound["grpc"]), "paceline-embedded", "ready")
            for each, pair in self.pairs.items()
            if pair.bound
        ]
        await self._registry.publish(entries)

    def begin(self, asked: inference_pb2.GenerateRequest, stub: Any = None) -> Stream:
        """Starts a stream of this or another gateway and returns at once."""
        answer = Answer()
        return Stream(answer, asyncio.create_task(self.ask(asked, answer=answer, stub=stub)))

    async def begin_all(self, count: int, tokens: int, first: int = 0) -> list[Stream]:
        """Starts ``count`` requests from number ``first`` on and waits until each has given some tokens."""
        return await self.begin_these([request(first + number, tokens) for number in range(count)])

    async def begin_these(self, asked: Sequence[inference_pb2.GenerateRequest], stub: Any = None) -> list[Stream]:
        """Starts requests and waits until each has given some tokens."""
        streams = [self.begin(each, stub) for each in asked]
        async with asyncio.timeout(WAIT_S):
            while not all(stream.answer.tokens or stream.task.done() for stream in streams):
                await asyncio.sleep(0.01)
        return streams

    async def ask(
        self,
        asked: inference_pb2.GenerateRequest,
        *,
        cancel_at: int = 1 << 30,
        answer: Answer | None = None,
        stub: Any = None,
    ) -> Answer:
        """Reads a stream of this or another gateway to its end, whatever that is; cancels it at a number of tokens."""
        answer = Answer() if answer is None else answer
        call = (stub or self.stub).Generate(asked, timeout=self.deadline_s, wait_for_ready=True)
        try:
            async for response in call:
                answer.take(response)
                if len(answer.tokens) >= cancel_at:
                    call.cancel()
        except grpc.RpcError as error:
            answer.code, answer.words = error.code(), error.details() or ""
            assert "Traceback" not in str(error), "no traces in errors"
        except asyncio.CancelledError:
            if not call.cancelled():
                raise
            answer.code = grpc.StatusCode.CANCELLED
        answer.last = time.monotonic()
        assert answer.code not in SHAMEFUL, answer.code
        return answer

    async def expected(self, count: int, tokens: int, first: int = 0) -> list[Answer]:
        """The answers of ``count`` requests from number ``first`` on, without speculation and without faults.

        Where all pairs serve one model each is asked for once, however often pairs come and go.
        """
        wanted = [(first + number, tokens) for number in range(count)]
        known = {} if self.others else self._expected
        new = [one for one in wanted if one not in known]
        answers = await asyncio.gather(*(self.ask(request(*one, off=True)) for one in new))
        known |= {one: answer for one, answer in zip(new, answers, strict=True) if answer.final is not None}
        return [known.get(one) or answers[new.index(one)] for one in wanted]

    async def released(self) -> None:
        """Waits until no target that lives holds anything for anybody."""
        for pair in self._living():
            await self.until(partial(at_rest, pair), "a target at rest")

    async def quiet(self) -> None:
        """Checks what must hold when no request is left: nothing held or kept, and the next request is served."""
        await self.released()
        probe = await self.ask(request(0, 4))
        assert probe.final is not None, probe.code
        pids = [self.gateway.process.pid, *(pair.target.process.pid for pair in self._living())]
        await self.until(lambda: not any(self._footprints.grown(pid) for pid in pids), "everything given back")

    async def warm_up(self) -> None:
        """Does once what takes most memory, many large prompts at once, so that what is kept of it is no growth."""
        large = request(0, 4)
        large.prompt.text = "x" * LARGE_PROMPT
        for _ in range(2):
            await asyncio.gather(*(self.ask(large) for _ in range(32)))
        await self.settle()

    async def settle(self) -> None:
        """Takes what every process holds now, at rest, as what it may hold."""
        self._footprints = Footprints()
        await self.quiet()

    def _living(self) -> list[PairProcesses]:
        return [pair for pair in self.pairs.values() if pair.target.process.poll() is None]

    async def until(self, done: Callable[[], bool], what: str, within_s: float = WAIT_S) -> None:
        """Polls in a thread, for ``done`` may block."""
        try:
            async with asyncio.timeout(within_s):
                while not await asyncio.to_thread(done):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise TimeoutError(f"{what}: not within {within_s:.0f} s; {self._footprints}") from None

    async def stop(self) -> None:
        """Ends everything."""
        if self._channel is not None:
            await self._channel.close()
        processes = [pair.stop for pair in self.pairs.values()]
        if self._gateway is not None:
            gateway = self._gateway
            processes.append(lambda: _kill(gateway))
        await asyncio.gather(*(asyncio.to_thread(stop) for stop in processes))
        await self._server.stop(0.0)

    def _launch(self, index: int, points: str | None = None, more: Sequence[str] = ()) -> None:
        self._starts += 1
        folder = self._folder / f"{index}.{self._starts}"
        folder.mkdir()
        environment = {**ENVIRONMENT, "PACELINE_SYNC_POINTS": points or self._points}
        # For proxies and hostile callers. Nobody else may listen where a killed target did, which gateways look for.
        open_port = ("--grpc", f"127.0.0.1:{free_port()}", "--insecure", "true")
        flags = ("--pair-id", f"pair-{index}", "--drain-grace-s", "1", *open_port, *self._flags, *more)
        proposer: tuple[str, ...] = ("--proposer", "ngram") if index % 2 and not self._alike else ()
        if "float64" in self._flags:  # a drafter shares its target's tensors
            proposer = (*proposer, "--dtype", "float64")
        models = self.others.get(index, self._models)
        self.pairs[index] = PairProcesses(folder, models, flags, environment, proposer, module=self.module)


@asynccontextmanager
async def running_fleet(
    pairs: int,
    flags: Sequence[str] = (),
    points: str = PACE,
    alike: bool = False,
    models: TinyPair | None = None,
    gateway_flags: Sequence[str] = (),
    module: str = "services.target",
) -> AsyncIterator[Fleet]:
    """A fleet in a folder of its own, gone afterwards; without `models` it serves random ones."""
    folder = Path(tempfile.mkdtemp(prefix="pl-"))
    fleet = Fleet(folder, models or write_tiny(folder / "models", seed=5), flags, points, alike)
    fleet.gateway_flags, fleet.module = gateway_flags, module
    try:
        await fleet.start(pairs)
        yield fleet
    finally:
        await fleet.stop()
        defects, orphans = defects_in(folder), processes_of(folder)
        shutil.rmtree(folder, ignore_errors=True)
    assert not defects, defects
    assert not orphans, orphans


def _kill(process: ServiceProcess) -> None:
    process.process.send_signal(signal.SIGCONT)
    process.stop(0.0)
