"""Joins what a client gets at once: each write costs more than a short event itself."""

from collections.abc import Callable, Iterable

from services.gateway.http.answers.answer import Answer
from services.gateway.streams.events import Delta, Final


class Joined:
    """An answer as its call writes it: one message an event; `held` is what the end of the stream brings.

    That is the end of the only choice, and its last tokens where they came with the end.
    """

    def __init__(self, answer: Answer, alone: bool) -> None:
        """`alone` is an answer of one choice; of several, each is told of its end at once."""
        self.held = b""
        self._answer = answer
        self._alone = alone

    @property
    def placed(self) -> Callable[[], bool]:
        """Tells whether a target has the request."""
        return self._answer.placed

    @placed.setter
    def placed(self, placed: Callable[[], bool]) -> None:
        self._answer.placed = placed

    def begin(self, choice: int, prompt: tuple[int, ...]) -> None:
        """As the answer's.

        Raises:
            PacelineError: as the answer's.
        """
        self._answer.begin(choice, prompt)

    def messages(self, choice: int, event: Delta | Final) -> Iterable[bytes]:
        """All that an event makes, unless it is held."""
        message = b"".join(self._answer.messages(choice, event))
        if self._alone and (isinstance(event, Final) or event.last):
            self.held += message
            return ()
        return (message,) if message else ()
