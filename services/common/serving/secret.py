"""What gateways and targets share: a text, or a file that is followed so that it can be rotated without a restart."""

import hmac
import logging
import time
from collections.abc import Callable
from pathlib import Path

from services.common.request.errors import invalid_field
from services.common.serving.followed import FollowedFile

logger = logging.getLogger(__name__)
SHORTEST = 16
"""Characters of a secret."""

OVERLAP_S = 600.0
"""Time for which a secret that was replaced is known beside the new one: pods see a new one minutes apart."""


class Secret:
    """The secret as it is now, and those that it has replaced for as long as they are known."""

    def __init__(self, text: str = "", file: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        """Reads the file, where one is given; without either nothing is known.

        Raises:
            OSError: the file cannot be read.
            ValueError: it holds no secret.
        """
        self._clock = clock
        self._present = text
        self._former: dict[str, float] = {}
        self._file = FollowedFile(Path(file), self._take, _complain) if file else None

    def __bool__(self) -> bool:
        return bool(self._present)

    @property
    def known(self) -> tuple[str, ...]:
        """The present one, then those that it replaced, the latest first; one empty text where there is none."""
        now = self._clock()
        self._former = {text: until for text, until in self._former.items() if until > now}
        return (self._present, *reversed(self._former))

    def matches(self, offered: str) -> bool:
        """Whether this is a known one; takes the same time for every text of a length."""
        found = False
        for text in self.known:
            found |= hmac.compare_digest(offered.encode(), text.encode())
        return found

    async def look(self) -> None:
        """Takes in a file that has changed."""
        if self._file is not None:
            await self._file.look()

    async def follow(self) -> None:
        """Looks every second until cancelled; ends at once where there is no file."""
        if self._file is not None:
            await self._file.follow()

    def _take(self, data: bytes) -> None:
        text = data.decode().strip()
        if len(text) < SHORTEST:
            raise ValueError(f"a secret has at least {SHORTEST} characters, the file holds {len(text)}")
        if self._present and self._present != text:
            self._former.pop(self._present, None)
            self._former[self._present] = self._clock() + OVERLAP_S
        self._former.pop(text, None)
        self._present = text


def _complain(error: Exception) -> None:
    logger.error("the secrets stay as they were: %s", error)


def check_secret(name: str, text: str, file: str) -> None:
    """Refuses a secret of a service's settings that could not be used; `name` is that of the text's setting.

    Raises:
        PacelineError: it is short, stated twice, or its file cannot be used.
    """
    if text and file:
        raise invalid_field(f"{name}_file", f"stands beside {name}, which means the same")
    if text and len(text) < SHORTEST:
        raise invalid_field(name, f"must have at least {SHORTEST} characters")
    try:
        Secret(file=file)
    except (OSError, ValueError) as error:
        raise invalid_field(f"{name}_file", str(error)) from None
