"""Certificates that are read again when their files change; files that cannot be used change nothing."""

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from services.common.request.errors import PacelineError

logger = logging.getLogger(__name__)
Made = TypeVar("Made")


class Rotation(Generic[Made]):
    """What the files make. A change is one line of the log, and so is each reason for which one is not taken."""

    def __init__(self, version: Callable[[], tuple[int, ...]], make: Callable[[], Made]) -> None:
        """Reads the files; their `version` is another one when they have changed.

        Raises:
            OSError, PacelineError: they cannot be used.
        """
        self._version = version
        self._make = make
        self._seen = version()
        self._complaint = ""
        self.present = make()

    def changed(self) -> Made | None:
        """What the files make now; None while that is as before."""
        try:
            now = self._version()
            if now == self._seen and not self._complaint:
                return None
            made = self._make()
        except (OSError, PacelineError) as error:
            if str(error) != self._complaint:
                logger.error("the certificates stay as they were: %s", error)
            self._complaint = str(error)
            return None
        self._seen, self._complaint, self.present = now, "", made
        logger.info("the certificates were read again")
        return made
