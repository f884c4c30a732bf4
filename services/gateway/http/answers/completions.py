"""POST /v1/completions: prompts that are continued."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from typing_extensions import TypedDict

from services.gateway.http.answers.answer import FINISH, Answer, extension
from services.gateway.http.answers.logprobs import (
    Offsets,
    Spell,
    WrittenCompletion,
    completion_logprobs,
    prompt_logprobs,
)
from services.gateway.http.reading.convert import scored_of
from services.gateway.http.schema.bodies import CompletionBody
from services.gateway.http.schema.replies import CompletionChoice, CompletionLogprobs
from services.gateway.http.server.exchange import Exchange
from services.gateway.streams.events import Delta, Final
from services.gateway.targets.messages import PositionLogprobs


class CompletionAnswer(Answer):
    """The text of each choice, behind its prompt where that is asked for, and log-probabilities of either."""

    prefix = "cmpl"

    def __init__(self, body: CompletionBody, exchange: Exchange, spell: Spell) -> None:
        """Nothing has come yet."""
        super().__init__(body, exchange, spell, scored_of(body))
        self._best = body.logprobs
        self.scored = self._best is not None
        self._echo = bool(body.echo)
        self._given = _texts(body)
        self._texts: defaultdict[int, list[str]] = defaultdict(list)
        self._written: defaultdict[int, WrittenCompletion] = defaultdict(WrittenCompletion)
        self._before: dict[int, CompletionLogprobs | None] = {}
        self._offsets: dict[int, Offsets] = {}
        self._prompt_told: set[int] = set()

    def kind(self) -> str:
        """Chunks have the same name as whole answers."""
        return "text_completion"

    def pieces(self, choice: int, delta: Delta) -> Iterable[CompletionChoice]:
        """One piece, and the prompt before the first; none while a character is incomplete."""
        if not self.streams:
            self._texts[choice].append(delta.text)
            if self.scored:
                self._keep(choice, delta.logprobs)
            return
        yield from self._echoes(choice)
        told = self._tells_ids and bool(delta.token_ids)
        if delta.text or delta.logprobs or self._drafts or told:
            piece = _piece(choice, delta.text, self._logprobs(choice, delta.logprobs))
            yield {**piece, **self._ids_told(choice, delta.token_ids)}

    def last(self, choice: int, final: Final) -> Iterable[CompletionChoice]:
        """What ends a streamed choice: the rest of the echo, and why it ended."""
        if self.streams:
            yield from self._echoes(choice)
            ended = _piece(choice, "", None)
            yield {**ended, "finish_reason": FINISH[final.reason], "paceline": extension(final)}

    def whole_choice(self, choice: int, final: Final) -> CompletionChoice:
        """The whole text."""
        text, self._before[choice] = self._echoed(choice)
        whole: CompletionChoice = {
            "index": choice,
            "text": text + "".join(self._texts[choice]),
            "logprobs": None,
            "finish_reason": FINISH[final.reason],
            "paceline": extension(final),
        }
        if self._prompt_logprobs is not None:
            whole["prompt_logprobs"] = self._prompts.told(choice, self._prompt_logprobs, self._spell)
        return {**whole, **self._ids_told(choice, self._ids[choice])}

    def written(self, choice: int) -> bytes:
        """Those of the prompt, where it is told, and of the choice."""
        return self._written[choice].json(self._before[choice])

    def _keep(self, choice: int, positions: Sequence[PositionLogprobs]) -> None:
        """Writes down the next ones, whose offsets begin behind the prompt where that is told."""
        if positions:
            if choice not in self._offsets:
                self._offsets[choice] = Offsets(len(self._prompt(choice)) if self._echo else 0)
            self._written[choice].add(completion_logprobs(positions, self._spell, self._offsets[choice]))

    def _prompt(self, choice: int) -> str:
        """The prompt as text."""
        given = self._given[choice // self._several]
        if given is not None:
            return given
        return b"".join(self._spell(token)[1] for token in self._prompts.ids(choice)).decode(errors="replace")

    def _ids_told(self, choice: int, ids: Sequence[int]) -> "Ids":
        """The token ids of an answer or of a piece of it, and those of its prompt beside the first."""
        if not self._tells_ids:
            return {}
        told: Ids = {"token_ids": [*ids]}
        if choice not in self._prompt_told:
            self._prompt_told.add(choice)
            told["prompt_token_ids"] = [*self._prompts.ids(choice)]
        return told

    def _echoes(self, choice: int) -> Iterable[CompletionChoice]:
        """A piece with the prompt, once, where it is asked for."""
        if self._echo and choice not in self._offsets:
            yield _piece(choice, *self._echoed(choice))

    def _echoed(self, choice: int) -> tuple[str, CompletionLogprobs | None]:
        """The prompt as text, and its log-probabilities; nothing where it is not asked for."""
        if not self._echo:
            return "", None
        text = self._prompt(choice)
        self._offsets.setdefault(choice, Offsets(len(text)))
        if self._best is None:
            return text, None
        ids = self._prompts.ids(choice)
        return text, prompt_logprobs(ids, self._prompts.scores(choice), self._best, self._spell, text)

    def _logprobs(self, choice: int, positions: Iterable[PositionLogprobs]) -> CompletionLogprobs | None:
        if self._best is None:
            return None
        return completion_logprobs(positions, self._spell, self._offsets.setdefault(choice, Offsets()))


class Ids(TypedDict, total=False):
    """Token ids that a client has asked for."""

    token_ids: list[int]
    prompt_token_ids: list[int]


def _texts(body: CompletionBody) -> list[str | None]:
    """The prompts that were given as text, None for those given as ids."""
    prompt = body.prompt
    if isinstance(prompt, str):
        return [prompt]
    if all(isinstance(one, int) for one in prompt):
        return [None]
    return [one if isinstance(one, str) else None for one in prompt]


def _piece(choice: int, text: str, logprobs: CompletionLogprobs | None) -> CompletionChoice:
    return {"index": choice, "text": text, "logprobs": logprobs, "finish_reason": None}
