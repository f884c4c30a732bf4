"""What is left of a session whose target stopped answering: nothing, without waiting for the garbage collector."""

import gc
import weakref
from pathlib import Path

from services.gateway.targets.session import Session
from tests.fakes_target import FakeTarget
from tests.integration.gateway_stack import harness
from tests.integration.test_gateway_faults import ready
from tests.integration.test_gateway_stream import until


async def test_nothing_keeps_the_connection_of_a_lost_session(tmp_path: Path) -> None:
    """Only the session that was lost is watched: the link opens others meanwhile, and other tests left theirs."""
    async with harness(tmp_path, [FakeTarget()]) as one:
        await ready(one, 1)
        gc.collect()
        held = weakref.WeakSet(each for each in gc.get_objects() if isinstance(each, Session) and not each.lost)
        assert len(held) == 1
        gc.disable()
        try:
            one.targets[0].stall()
            await until(lambda: not held)
        finally:
            gc.enable()
