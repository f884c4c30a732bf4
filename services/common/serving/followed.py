"""A file that is read again when it changes; one that cannot be used changes nothing."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from services.common.serving.files import read_regular

logger = logging.getLogger(__name__)
LOOK_EVERY_S = 1.0


class FollowedFile:
    """Looks at the content, so that a swapped symbolic link, as Kubernetes swaps it, counts as a change."""

    def __init__(self, path: Path, take: Callable[[bytes], None], complain: Callable[[Exception], None]) -> None:
        """Reads the file.

        Args:
            path: where it is.
            take: takes in a content, or raises ValueError and has changed nothing.
            complain: logs why a content cannot be used.

        Raises:
            OSError: it cannot be read.
            ValueError: `take` refuses it.
        """
        self._path = path
        self._take = take
        self._complain = complain
        self._complaint = ""
        self._away = False
        self._seen = read_regular(path)
        take(self._seen)

    async def follow(self) -> None:
        """Looks at the file every second, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self.look()

    async def look(self) -> None:
        """Takes in what has changed; a failure is logged once."""
        try:
            data = await asyncio.to_thread(read_regular, self._path)
            if data == self._seen and not self._away:
                return
            self._seen, self._away = data, False
            self._take(data)
            self._complaint = ""
            logger.info("%s was read again", self._path)
        except (OSError, ValueError) as error:
            self._away = isinstance(error, OSError)
            if str(error) != self._complaint:
                self._complain(error)
            self._complaint = str(error)
