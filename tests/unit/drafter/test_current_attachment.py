"""The current attachment's bookkeeping, with attachments that hold nothing."""

import asyncio
from typing import cast

import pytest

from services.common.pair.attach import AttachOffer
from services.common.request.errors import PacelineError
from services.drafter.attachment import Attachment
from services.drafter.current_attachment import CurrentAttachment
from tests.unit.drafter.running import until


class _Empty:
    """An attachment without memory."""

    def __init__(self, offer: AttachOffer) -> None:
        self.offer = offer
        self.watched_pid = 0
        self.closed = False

    @property
    def live(self) -> bool:
        return not self.closed

    def close(self) -> None:
        self.closed = True


class _Offer:
    generation = 1


def _open(offer: AttachOffer) -> Attachment:
    return cast(Attachment, _Empty(offer))


OFFER = cast(AttachOffer, _Offer())


async def test_an_open_stream_may_be_quiet_for_longer_than_the_timeout() -> None:
    current = CurrentAttachment(_open, pace_timeout_s=0.05)
    attachment = await current.attach(OFFER)
    with current.pacing():
        await asyncio.sleep(0.3)
        assert attachment.live
        assert current.attachment is attachment
    assert not attachment.live


async def test_an_attachment_without_a_stream_does_not_outlive_the_timeout() -> None:
    current = CurrentAttachment(_open, pace_timeout_s=0.05)
    attachment = await current.attach(OFFER)
    await until(lambda: not attachment.live)
    assert current.attachment is None


async def test_freeing_ends_the_stream_with_a_reason() -> None:
    current = CurrentAttachment(_open, pace_timeout_s=30)
    await current.attach(OFFER)

    async def stream() -> None:
        with current.pacing():
            await asyncio.Event().wait()

    task = asyncio.create_task(stream())
    await asyncio.sleep(0)
    current.free("for the test")
    with pytest.raises(PacelineError, match="not attached any more"):
        await task


class _Gated:
    """Opens when `gate` is set; `entered` tells that it waits for that."""

    def __init__(self) -> None:
        self.gate, self.entered = asyncio.Event(), asyncio.Event()
        self.opened: list[Attachment] = []
        self._loop = asyncio.get_running_loop()

    def __call__(self, offer: AttachOffer) -> Attachment:
        self._loop.call_soon_threadsafe(self.entered.set)
        asyncio.run_coroutine_threadsafe(self.gate.wait(), self._loop).result()
        self.opened.append(_open(offer))
        return self.opened[0]


async def test_an_attach_that_is_given_up_is_closed_when_it_opens() -> None:
    opening = _Gated()
    current = CurrentAttachment(opening, pace_timeout_s=30)
    task = asyncio.create_task(current.attach(OFFER))
    await opening.entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    opening.gate.set()
    await until(lambda: bool(opening.opened) and not opening.opened[0].live)
    assert current.attachment is None


async def test_a_check_of_the_device_waits_for_an_opening_that_is_under_way() -> None:
    opening, seen = _Gated(), list[int]()
    current = CurrentAttachment(opening, pace_timeout_s=30)
    attach = asyncio.create_task(current.attach(OFFER))
    await opening.entered.wait()
    check = asyncio.create_task(current.between_openings(lambda: seen.append(len(opening.opened))))
    await asyncio.sleep(0.05)
    assert seen == []
    opening.gate.set()
    await asyncio.gather(attach, check)
    assert seen == [1]
    current.free("for the test")
