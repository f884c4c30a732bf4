"""Holds the one attachment of a drafter: replaces it, and frees it when its target is gone.

All methods run on the service's event loop; only the opening of an attachment runs in a thread.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from services.common.pair.attach import AttachOffer
from services.drafter.attachment import Attachment
from services.drafter.errors import refused
from services.drafter.target_watch import TargetWatch

logger = logging.getLogger(__name__)

Open = Callable[[AttachOffer], Attachment]


class CurrentAttachment:
    """At most one attachment with at most one Pace stream."""

    def __init__(self, open_attachment: Open, pace_timeout_s: float) -> None:
        self._open = open_attachment
        self._pace_timeout_s = pace_timeout_s
        # One thread opens all attachments, because libraries of the GPU keep a workspace for every thread that they
        # meet.
        self._opener = ThreadPoolExecutor(1, "attach")
        self._lock = asyncio.Lock()
        self._attachment: Attachment | None = None
        self._watch: TargetWatch | None = None
        self._stream: asyncio.Task[object] | None = None
        self._unpaced: asyncio.TimerHandle | None = None

    @property
    def attachment(self) -> Attachment | None:
        """The present attachment, if there is one."""
        return self._attachment

    async def attach(self, offer: AttachOffer) -> Attachment:
        """Opens an attachment and puts it in place of an earlier one, whose stream ends.

        Raises:
            PacelineError: it is refused; the earlier one stays.
        """
        async with self._lock:
            attachment = await self._opened(offer)
            self.free("replaced by a new attachment")
            self._attachment = attachment
            self._watch = self._watched(attachment)
            loop = asyncio.get_running_loop()
            self._unpaced = loop.call_later(self._pace_timeout_s, self._end, attachment, "no Pace stream came")
        logger.info("attached generation %d", offer.generation)
        return attachment

    @contextlib.contextmanager
    def pacing(self) -> Iterator[Attachment]:
        """Binds the running task to the attachment as its one Pace stream; the attachment ends with it.

        Raises:
            PacelineError: there is no attachment, it has a stream, or it was freed meanwhile.
        """
        attachment = self._attachment
        if attachment is None or self._stream is not None:
            raise refused("nothing is attached" if attachment is None else "the attachment has a Pace stream already")
        task = asyncio.current_task()
        self._stream = task
        self._stop_timer()
        try:
            yield attachment
        except asyncio.CancelledError:
            if attachment.live or task is None:
                raise
            task.uncancel()
            raise refused(f"generation {attachment.offer.generation} is not attached any more") from None
        finally:
            self._end(attachment, "its Pace stream ended")

    async def between_openings(self, check: Callable[[], object]) -> None:
        """Runs `check` on the thread that opens attachments, because captures forbid other calls of CUDA."""
        await asyncio.get_running_loop().run_in_executor(self._opener, check)

    def free(self, reason: str) -> None:
        """Ends the attachment, if there is one, and its stream."""
        attachment, self._attachment = self._attachment, None
        stream, self._stream = self._stream, None
        self._stop_timer()
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if attachment is None:
            return
        attachment.close()
        if stream is not None and stream is not asyncio.current_task():
            stream.cancel()
        logger.info("freed generation %d: %s", attachment.offer.generation, reason)

    def _end(self, attachment: Attachment, reason: str) -> None:
        if attachment is self._attachment:
            self.free(reason)

    async def _opened(self, offer: AttachOffer) -> Attachment:
        opening = asyncio.get_running_loop().run_in_executor(self._opener, self._open, offer)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_discard)
            raise

    def _watched(self, attachment: Attachment) -> TargetWatch | None:
        if not attachment.watched_pid:
            return None
        with contextlib.suppress(OSError):
            return TargetWatch(attachment.watched_pid, lambda: self._end(attachment, "its target died"))
        logger.warning("the target's process cannot be watched: its Pace stream's end will tell")
        return None

    def _stop_timer(self) -> None:
        if self._unpaced is not None:
            self._unpaced.cancel()
            self._unpaced = None


def _discard(opening: "asyncio.Future[Attachment]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
