"""Idempotency keys of the requests that run through this gateway."""

from collections.abc import Iterator
from contextlib import contextmanager

from services.common.request.errors import Code, PacelineError, Reason


class RunningKeys:
    """Refuses a duplicate here while its request may be between two targets, where no target could refuse it."""

    def __init__(self) -> None:
        """Nothing runs."""
        self._running: set[tuple[str, str]] = set()

    @contextmanager
    def held(self, tenant: str, key: str) -> Iterator[None]:
        """Holds a key while the block runs; an empty one is never held.

        Raises:
            PacelineError: ALREADY_EXISTS/DUPLICATE when another request holds it.
        """
        if not key:
            yield
            return
        if (tenant, key) in self._running:
            raise PacelineError(Code.ALREADY_EXISTS, Reason.DUPLICATE, "a request with this idempotency key is running")
        self._running.add((tenant, key))
        try:
            yield
        finally:
            self._running.remove((tenant, key))
