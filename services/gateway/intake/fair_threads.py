"""Threads for long work, which tenants use in turn."""

import asyncio
import traceback
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

Result = TypeVar("Result")


class FairThreads:
    """Runs one piece of work of a tenant at a time, so that a tenant with much work delays only itself."""

    def __init__(self, threads: int, name: str) -> None:
        """Makes threads as they are needed, of which as many tenants have one each at once."""
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._free = asyncio.Semaphore(threads)
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def run(self, tenant: str, work: Callable[..., Result], *arguments: Any) -> Result:
        """Returns or raises what the work does.

        Work that is cancelled before it began never runs; later it runs to its end.
        """
        turn = self._turns[tenant]
        await turn.acquire()
        try:
            await self._free.acquire()
        except BaseException:
            turn.release()
            raise
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Result] = loop.create_future()
        future = self._pool.submit(_tidied, work, *arguments)
        future.add_done_callback(partial(self._ended, loop, turn, result))
        try:
            return await result
        except asyncio.CancelledError:
            future.cancel()
            raise
        finally:
            del future, result  # its error holds this frame, which would hold it

    def _ended(
        self,
        loop: asyncio.AbstractEventLoop,
        turn: asyncio.Lock,
        result: asyncio.Future[Result],
        done: Future[Result],
    ) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits for a turn
            loop.call_soon_threadsafe(self._settle, turn, done, result)

    def _settle(self, turn: asyncio.Lock, done: Future[Result], result: asyncio.Future[Result]) -> None:
        """Gives on place and turn, and tells who waits: every wake of the loop from a thread is a system call."""
        self._free.release()
        turn.release()
        if result.done():
            return
        if done.cancelled():
            result.cancel()
        elif (error := done.exception()) is not None:
            result.set_exception(error)
        else:
            result.set_result(done.result())

    def close(self) -> None:
        """Ends the threads; work that has not begun is dropped."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _tidied(work: Callable[..., Result], *arguments: Any) -> Result:
    """What the work makes; an error, which lives until its client has read of it, holds nothing of it."""
    try:
        return work(*arguments)
    except BaseException as error:
        found: BaseException | None = error
        while found is not None:
            traceback.clear_frames(found.__traceback__)
            found = found.__context__
        raise
