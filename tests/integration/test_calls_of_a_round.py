"""How many calls a steady round takes, and files, classes and lines of services/ that it reaches.

Drafter, target and gateway are in one process, and there is one request.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, cast

import grpc

from services.common.pb.paceline.v1 import inference_pb2 as pb
from services.common.pb.paceline.v1 import inference_pb2_grpc as rpc
from services.common.pb.paceline.v1 import types_pb2 as types
from services.drafter.app import DrafterApp
from services.drafter.settings import DrafterSettings
from services.gateway.app import GatewayApp
from services.gateway.settings import GatewaySettings
from services.target.app import TargetApp
from services.target.settings import TargetSettings

MODELS = Path(__file__).resolve().parents[2] / "models" / "embedded"
MOST_CALLS, MOST_FILES, TIMES = 260, 60, 3
BY_THE_CLOCK = {
    "metrics",
    "StateMeter.follow",
    "Heartbeat.watch",
    "_Clock._run",
    "observe_loop_lag",
    "keep_health",
    "Link._retirement",
}
WAIT_S = 120.0


def task_name() -> str:
    """The coroutine that the running task began with, or the thread that has no tasks; empty between tasks."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return threading.current_thread().name
    coroutine = task.get_coro() if task is not None else None
    return getattr(coroutine, "__qualname__", "")


class Counts(NamedTuple):
    """Calls of a round, the files and kinds of objects that they go to, and all lines of these files."""

    calls: float
    files: int
    classes: int = 0
    lines: int = 0


class Calls:
    """Counts calls into services/ while it is on. Generated stubs and tasks that a clock drives are left out."""

    def __init__(self) -> None:
        self.on = False
        self.count: Counter[str] = Counter()
        """Calls by the file that is called."""
        self.kinds: Counter[type] = Counter()
        """Calls by the kind of object whose method is called."""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if self.on and event == "call":
            file = frame.f_code.co_filename
            if "/services/" in file and "/services/common/pb/" not in file and task_name() not in BY_THE_CLOCK:
                self.count[file] += 1
                if "self" in frame.f_code.co_varnames or "self" in frame.f_code.co_freevars:
                    self.kinds[type(frame.f_locals.get("self"))] += 1

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Watches this thread and those that are started meanwhile."""
        sys.setprofile(self)
        threading.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


@asynccontextmanager
async def stack(folder: str) -> AsyncIterator[rpc.InferenceServiceAsyncStub]:
    """The three services on this event loop; target and drafter take turns over the side socket."""
    drafter = DrafterApp(DrafterSettings(model=str(MODELS / "drafter"), grpc=f"unix:{folder}/d.sock"))
    target = TargetApp(
        TargetSettings(
            model=str(MODELS / "target"),
            drafter_model=str(MODELS / "drafter"),
            drafter_address=f"unix:{folder}/d.sock",
            grpc=f"unix:{folder}/t.sock",
            run_dir=folder,
            adaptive=False,
            widths=(1, 8),
            slots=1,
            watchdog_s=20.0,
            propagation_s=0.0,
        )
    )
    gateway = GatewayApp(GatewaySettings(tokenizer=str(MODELS / "target"), targets=(f"unix:{folder}/t.sock",)))
    async with AsyncExitStack() as exits:
        for app in (drafter, target, gateway):
            exits.push_async_callback(app.drain)
        await drafter.start()
        await target.start()
        await target.wait_ready(WAIT_S)
        address = (await gateway.start()).as_dict()["grpc"]
        async with asyncio.timeout(WAIT_S):
            while not gateway.ready:
                await asyncio.sleep(0.05)
        channel = await exits.enter_async_context(grpc.aio.insecure_channel(address))
        yield cast("rpc.InferenceServiceAsyncStub", rpc.InferenceServiceStub(channel))


async def rounds_of(stub: rpc.InferenceServiceAsyncStub, tokens: int) -> int:
    """Generates greedily; returns how many rounds it took."""
    request = pb.GenerateRequest(
        prompt=pb.Prompt(text="def main():\n    "),
        stopping=types.Stopping(max_tokens=tokens, ignore_eos=True),
    )
    messages = [message async for message in stub.Generate(request)]
    return messages[-1].final.speculation.rounds


async def calls_a_round(calls: Calls, stub: rpc.InferenceServiceAsyncStub) -> Counts:
    """What the rounds between a short and a long answer took: how a request begins and ends is in both.

    A file that is called less than every other round is none of a steady one.
    """
    found = []
    for tokens in (33, 161):
        calls.on, calls.count, calls.kinds = True, Counter(), Counter()
        rounds = await rounds_of(stub, tokens)
        calls.on = False
        found.append((rounds, calls.count, calls.kinds))
    (few, least, fewer), (many, most, more) = found
    by_file = {file: (most[file] - least[file]) / (many - few) for file in most}
    files = [Path(file) for file, count in by_file.items() if count >= 0.5]
    kinds = [kind for kind in more if more[kind] - fewer[kind] >= 0.5 * (many - few)]
    lines = sum(len(file.read_text().splitlines()) for file in files)
    return Counts(sum(by_file.values()), len(files), len(kinds), lines)


async def measured(calls: Calls) -> Counts:
    """What a round takes, once all that the first request starts has started."""
    with tempfile.TemporaryDirectory(prefix="pl-") as folder:
        async with stack(folder) as stub:
            await rounds_of(stub, 64)
            return await calls_a_round(calls, stub)


def test_a_steady_round_takes_few_calls(report_counts: Callable[[str, int], None]) -> None:
    """The least of a few counts: who waits on a busy machine looks again, and no count is below what a round needs."""
    calls, least = Calls(), Counts(float("inf"), sys.maxsize)
    for _ in range(TIMES):
        if least.calls > MOST_CALLS or least.files > MOST_FILES:
            with calls.counted():
                found = asyncio.run(measured(calls))
            least = found._replace(calls=min(least.calls, found.calls), files=min(least.files, found.files))
    report_counts("calls_a_round", round(least.calls))
    report_counts("files_a_round", least.files)
    report_counts("classes_a_round", least.classes)
    report_counts("lines_a_round", least.lines)
    assert least.calls <= MOST_CALLS and least.files <= MOST_FILES
