"""What other APIs share: the answer to a chat, handed on as parts."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from services.gateway.http.answers.chat import ENDINGS, ChatAnswer
from services.gateway.http.answers.logprobs import Spell
from services.gateway.http.schema.bodies import ChatBody
from services.gateway.http.server.exchange import Exchange, encoded
from services.gateway.parsing.form import Form
from services.gateway.parsing.output import Ending, Part
from services.gateway.streams.events import Delta, Final


def named_event(value: Any) -> bytes:
    """One event of a stream, named by its type."""
    return f"event: {value['type']}\n".encode() + b"data: " + encoded(value) + b"\n\n"


class TranslatedAnswer(ChatAnswer):
    """One choice of a chat in the form of another API; `head` is called once, before the first part."""

    def __init__(self, body: ChatBody, exchange: Exchange, spell: Spell, forms: Sequence[Form]) -> None:
        """Nothing has come yet."""
        super().__init__(body, exchange, spell, forms)
        self.prompt_tokens = 0
        self._headed = False

    def begin(self, choice: int, prompt: tuple[int, ...]) -> None:
        """Counts the prompt too."""
        self.prompt_tokens = len(prompt)
        super().begin(choice, prompt)

    def messages(self, choice: int, event: Delta | Final) -> Iterable[bytes]:
        """Events of one event; none when the client wants one body."""
        state = self._choices[choice]
        if isinstance(event, Final):
            self._finals[choice] = event
            parts = state.splitter.finish(ENDINGS.get(event.reason, Ending.CUT))
        else:
            self._thoughts[choice].push(event.token_ids)
            parts = state.splitter.push(event.text)
        parts = state.wanted(parts)
        state.take(parts)
        events = [*([] if self._headed else self.head()), *self.taken(parts)]
        self._headed = True
        return [named_event(one) for one in events] if self.streams else []

    def whole(self) -> bytes:
        """The body, when the answer has ended."""
        self.close()
        return encoded(self.reply())

    def ending(self) -> bytes:
        """The last events."""
        return b"".join(named_event(one) for one in [*self.close(), *self.tail()])

    @property
    def final(self) -> Final:
        """The end of the only answer."""
        return self._finals[0]

    @property
    def finish(self) -> str:
        """OpenAI's name of its end."""
        return self._choices[0].finish(self.final)

    @abstractmethod
    def head(self) -> Iterable[dict[str, Any]]:
        """The first events."""

    @abstractmethod
    def taken(self, parts: Iterable[Part]) -> list[dict[str, Any]]:
        """Keeps parts; their events."""

    @abstractmethod
    def close(self) -> list[dict[str, Any]]:
        """Ends what is open; its events."""

    @abstractmethod
    def tail(self) -> Iterable[dict[str, Any]]:
        """The last events."""

    @abstractmethod
    def reply(self) -> Any:
        """The reply of a call that is not streamed."""
