"""One request measured, and where requests go."""

from dataclasses import dataclass
from typing import Protocol


class FailedError(RuntimeError):
    """An endpoint refused a request or broke off."""


@dataclass(frozen=True)
class Sample:
    """Seconds from the request to its first tokens and to its last ones, and how many came."""

    first_s: float
    last_s: float
    tokens: int

    @property
    def gap_s(self) -> float | None:
        """Mean time between tokens; None when there is only one."""
        return (self.last_s - self.first_s) / (self.tokens - 1) if self.tokens > 1 else None


@dataclass(frozen=True)
class Job:
    """What one request asks for: text continued, or as a chat answered."""

    prompt: str
    max_tokens: int
    chat: bool = False
    ignore_eos: bool = False


class Endpoint(Protocol):
    """Somewhere that generates; any number of threads may ask it."""

    def ask(self, job: Job) -> Sample:
        """Runs one request to its end.

        Raises:
            FailedError: it gave no tokens, or broke off.
        """
