"""Makes the answer of one call from its choices: the part that both endpoints share, usage and ends."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from services.common.request.sampling import FinishReason
from services.gateway.http.answers.drafts import DraftedTokens
from services.gateway.http.answers.kept import KEPT
from services.gateway.http.answers.logprobs import Spell
from services.gateway.http.answers.prompts import Prompts
from services.gateway.http.schema.bodies import Common
from services.gateway.http.schema.replies import ChoiceExtension, Drafts, FinishName, Usage
from services.gateway.http.server.exchange import Exchange, encoded, event
from services.gateway.streams.events import Delta, Final

DONE = b"data: [DONE]\n\n"
FINISH: dict[FinishReason, FinishName] = {
    FinishReason.STOP_TOKEN: "stop",
    FinishReason.STOP_STRING: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.CONTEXT: "length",
    FinishReason.DEADLINE: "length",
}
"""OpenAI's names; the extension of a choice has ours."""


class Answer(ABC):
    """One answer: events while it streams, else one body at its end."""

    prefix: str
    best = "logprobs"
    """The option that asks for alternatives."""

    def __init__(self, body: Common, exchange: Exchange, spell: Spell, scored: int | None = None) -> None:
        """Nothing has come yet; of each token of prompts `scored` alternatives are told, where it is not None."""
        self._spell = spell
        self._several = body.n or 1
        self._prompts = Prompts(self._several, scored)
        self._prompt_logprobs = body.prompt_logprobs
        self.placed: Callable[[], bool] = lambda: False
        self.streams = bool(body.stream)
        self._tells_ids = bool(body.return_token_ids)
        self._ids: defaultdict[int, list[int]] = defaultdict(list)
        self._tells_usage = bool(body.stream_options and body.stream_options.include_usage)
        self._drafts = DraftedTokens(spell) if body.paceline and body.paceline.drafts else None
        self._finals: dict[int, Final] = {}
        self._head: dict[str, Any] = {
            "id": f"{self.prefix}-{exchange.request_id}",
            "created": exchange.created,
            "model": body.model,
            "system_fingerprint": None,
        }
        self._chunk_begins = b""
        self.scored = False
        self._kept = 0

    def begin(self, choice: int, prompt: tuple[int, ...]) -> None:
        """The token ids of a choice's prompt, before any of its events.

        Raises:
            PacelineError: INVALID_FIELD, the call wants more scores of prompts than are kept.
        """
        self._prompts.begin(choice, prompt)

    def messages(self, choice: int, event: Delta | Final) -> Iterable[bytes]:
        """Events of one event of a choice; none when the client wants one body."""
        if isinstance(event, Final):
            self._finals[choice] = event
            pieces = self.last(choice, event)
            return self._events(pieces) if self.streams else [*pieces][:0]
        self._prompts.take(choice, event)
        if event.logprobs and not self.streams:
            self._kept = KEPT.add(event, self._kept, self.best)
        if self._tells_ids and not self.streams:
            self._ids[choice] += event.token_ids
        if not (event.token_ids or event.text):
            return []
        pieces = self.pieces(choice, event)
        return self._events(pieces, self._told(choice, event)) if self.streams else [*pieces][:0]

    @abstractmethod
    def pieces(self, choice: int, delta: Delta) -> Iterable[Any]:
        """The pieces of a choice that a delta makes, as they stand in chunks; what a whole answer needs is kept."""

    @abstractmethod
    def last(self, choice: int, final: Final) -> Iterable[Any]:
        """The last pieces of a choice."""

    @abstractmethod
    def kind(self) -> str:
        """The name of what is sent, as `object` states it."""

    @abstractmethod
    def whole_choice(self, choice: int, final: Final) -> Any:
        """A choice as it stands in the whole answer, but for log-probabilities."""

    @abstractmethod
    def written(self, choice: int) -> bytes:
        """The log-probabilities of a choice as JSON, where the call is for them."""

    def whole(self) -> bytes:
        """The body, when all choices have ended."""
        choices = [self.whole_choice(choice, self._finals[choice]) for choice in sorted(self._finals)]
        body = {**self._head, "object": self.kind(), "choices": choices, "usage": self.usage(), **self.extra()}
        if not self.scored:
            return encoded(body)
        del body["choices"]
        written = b",".join([*map(self._with_scores, sorted(self._finals), choices)])
        return encoded(body)[:-1] + b',"choices":[' + written + b"]}"

    def _with_scores(self, choice: int, told: Any) -> bytes:
        """A choice with its log-probabilities, which are not made objects of again."""
        del told["logprobs"]
        return encoded(told)[:-1] + b',"logprobs":' + self.written(choice) + b"}"

    def release(self) -> None:
        """The call has ended, whatever its end."""
        KEPT.free(self._kept)
        self._kept = 0

    def extra(self) -> dict[str, Any]:
        """Further fields of the body."""
        return {}

    def ending(self) -> bytes:
        """What ends a stream: usage, where it was asked for, and OpenAI's `[DONE]`."""
        if not self._tells_usage:
            return DONE
        return event({**self._head, "object": self.kind(), "choices": [], "usage": self.usage()}) + DONE

    def usage(self) -> Usage:
        """Tokens of all choices together; each prompt was computed once."""
        finals = [self._finals[choice] for choice in sorted(self._finals)]
        firsts = finals[:: self._several]
        prompt = sum(final.prompt_tokens for final in firsts)
        completion = sum(final.completion_tokens for final in finals)
        accepted = sum(final.totals.speculation.accepted for final in finals)
        drafted = sum(final.totals.speculation.drafted for final in finals)
        rounds = sum(final.totals.speculation.rounds for final in finals)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": sum(final.totals.usage.cached_tokens for final in firsts)},
            "completion_tokens_details": {"reasoning_tokens": self.thought_tokens()},
            "paceline": {"rounds": rounds, "drafted": drafted, "accepted": accepted},
        }

    def thought_tokens(self) -> int:
        """Tokens of thoughts in all choices."""
        return 0

    def _told(self, choice: int, delta: Delta) -> Drafts | None:
        return self._drafts.of(choice, delta) if self._drafts else None

    def _events(self, pieces: Iterable[Any], drafts: Drafts | None = None) -> Iterator[bytes]:
        """Chunks: what is equal in all of them is encoded once."""
        begins = self._chunk_begins = self._chunk_begins or self._begins()
        for piece in pieces:
            told = self.first_told()
            if drafts is not None:
                told, drafts = {"paceline": drafts, **told}, None
            more = b"," + encoded(told)[1:] if told else b"}"
            yield b"".join((begins, encoded(piece), b"]", more, b"\n\n"))

    def _begins(self) -> bytes:
        """An event up to its only choice."""
        usage = {"usage": None} if self._tells_usage else {}
        return b"data: " + encoded({**self._head, "object": self.kind(), **usage})[:-1] + b',"choices":['

    def first_told(self) -> dict[str, Any]:
        """Further fields of a chunk, told once."""
        return {}


def extension(final: Final) -> ChoiceExtension:
    """The fields for which OpenAI's API has no name."""
    return {"finish_reason": final.reason.value, "seed": final.seed}
