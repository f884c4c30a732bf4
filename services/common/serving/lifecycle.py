"""Runs one service as a process: start, announce, wait for a signal, drain, exit 0."""

import asyncio
import gc
import json
import logging
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from services.common.metrics.version import VERSION
from services.common.serving import logs
from services.common.serving.server import Bound

_LOG = logging.getLogger(__name__)


class App(Protocol):
    """A service that a process or an actor can host."""

    @property
    def ready(self) -> bool:
        """The service can take work."""

    async def start(self) -> Bound:
        """Binds the listeners; warm-up may go on afterwards."""

    async def drain(self) -> None:
        """Finishes running work and ends the service."""


def run(service: str, app: App, log_level: str = "info", pair: str = "") -> int:
    """Runs the app until SIGTERM or SIGINT; returns the exit code. Its log names the pair that it serves, if any.

    A signal during the start ends it. Prints one JSON line with the bound addresses as soon as they are known. A failed
    start raises, so the process ends with a code other than 0. A fatal error later (app.fatal, when the app has one)
    ends the process with 1. The log tells which version listens, that the process was asked to end, and its end.
    """
    logs.configure(service, log_level, pair)
    return asyncio.run(_run(service, app))


async def _run(service: str, app: App) -> int:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    workers = ThreadPoolExecutor(thread_name_prefix="service")
    loop.set_default_executor(workers)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _asked, number, stopped)
    try:
        return await _serve(service, app, stopped)
    finally:
        workers.shutdown(wait=False, cancel_futures=True)
        # asyncio.run waits for the threads of the default executor, and one of them may still load.
        loop.set_default_executor(ThreadPoolExecutor(1))


def _asked(number: signal.Signals, stopped: asyncio.Event) -> None:
    if not stopped.is_set():
        _LOG.info("asked to end", extra={"signal": number.name})
    stopped.set()


async def _serve(service: str, app: App, stopped: asyncio.Event) -> int:
    asked, starting = asyncio.create_task(stopped.wait()), asyncio.create_task(app.start())
    await asyncio.wait([asked, starting], return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.wait([starting])
        await _drain(app)
        return 0
    bound = starting.result()
    _freeze()
    print(json.dumps({"service": service, **bound.as_dict(), "pid": os.getpid()}), flush=True)
    _LOG.info("listening", extra={"version": VERSION, **bound.as_dict()})
    fatal: asyncio.Future[None] | None = getattr(app, "fatal", None)
    watched: list[asyncio.Future[Any]] = [asked] if fatal is None else [asked, fatal]
    await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    await _drain(app)
    return 1 if fatal is not None and fatal.done() and fatal.exception() else 0


async def _drain(app: App) -> None:
    begun = time.monotonic()
    await app.drain()
    _LOG.info("ended", extra={"drained_s": round(time.monotonic() - begun, 3)})


def _freeze() -> None:
    """Excludes the objects of the start from garbage collection.

    A full collection waits until the number of objects has grown by a quarter. Counting those of the libraries, it
    would come after the garbage of thousands of requests, and stop the process for long. From here on there are
    collections, which `collect_later` may have put off.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.collect()
