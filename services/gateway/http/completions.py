"""POST /v1/completions: a prompt that is continued."""

from collections import defaultdict
from collections.abc import Iterable

from services.gateway.generation import Delta, Final
from services.gateway.http.answer import FINISH, Answer, extension
from services.gateway.http.bodies import CompletionBody
from services.gateway.http.exchange import Exchange
from services.gateway.http.logprobs import Spell, completion_logprobs
from services.gateway.http.replies import CompletionChoice, CompletionLogprobs
from services.gateway.targets.messages import PositionLogprobs


class CompletionAnswer(Answer):
    """The text of each choice, and where it is asked for its log-probabilities."""

    prefix = "cmpl"

    def __init__(self, body: CompletionBody, exchange: Exchange, spell: Spell) -> None:
        """Nothing has come yet."""
        super().__init__(body, exchange, spell)
        self._wants_logprobs = body.logprobs is not None
        self._texts: defaultdict[int, list[str]] = defaultdict(list)
        self._positions: defaultdict[int, list[PositionLogprobs]] = defaultdict(list)
        self._offsets: defaultdict[int, int] = defaultdict(int)

    def kind(self) -> str:
        """Chunks have the same name as whole answers."""
        return "text_completion"

    def pieces(self, choice: int, delta: Delta) -> Iterable[CompletionChoice]:
        """One piece; none while a character is incomplete."""
        if not self.streams:
            self._texts[choice].append(delta.text)
            self._positions[choice] += delta.logprobs
        elif delta.text or delta.logprobs or self._drafts:
            logprobs = self._logprobs(choice, delta.logprobs)
            yield {"index": choice, "text": delta.text, "logprobs": logprobs, "finish_reason": None}

    def last(self, choice: int, final: Final) -> Iterable[CompletionChoice]:
        """Why it ended."""
        if self.streams:
            yield {
                "index": choice,
                "text": "",
                "logprobs": None,
                "finish_reason": FINISH[final.reason],
                "paceline": extension(final),
            }

    def whole_choice(self, choice: int, final: Final) -> CompletionChoice:
        """The whole text."""
        return {
            "index": choice,
            "text": "".join(self._texts[choice]),
            "logprobs": self._logprobs(choice, self._positions[choice]),
            "finish_reason": FINISH[final.reason],
            "paceline": extension(final),
        }

    def _logprobs(self, choice: int, positions: Iterable[PositionLogprobs]) -> CompletionLogprobs | None:
        if not self._wants_logprobs:
            return None
        found = completion_logprobs(positions, self._spell, self._offsets[choice])
        self._offsets[choice] += sum(len(token) for token in found["tokens"])
        return found
