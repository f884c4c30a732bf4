"""Waiting times between attempts to connect."""

import asyncio
import random

FIRST_S = 0.05
LONGEST_S = 2.0


class Backoff:
    """Doubles from 0.05 s to 2 s, with jitter so that many gateways do not return at once."""

    def __init__(self) -> None:
        """Starts at the shortest wait."""
        self._next_s = FIRST_S

    def reset(self) -> None:
        """The connection works: the next wait is the shortest."""
        self._next_s = FIRST_S

    async def wait(self) -> None:
        """Sleeps between half of the current wait and all of it."""
        await asyncio.sleep(self._next_s * random.uniform(0.5, 1.0))
        self._next_s = min(self._next_s * 2, LONGEST_S)
