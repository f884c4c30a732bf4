"""What the answer to a call tells of its prompts: their ids, and the scores of their tokens."""

from collections import defaultdict

from services.common.request.validation import check_prompt_logprobs
from services.gateway.http.answers.logprobs import Spell
from services.gateway.http.schema.replies import PromptToken
from services.gateway.streams.events import Delta
from services.gateway.targets.messages import PositionLogprobs


class Prompts:
    """The prompts of one call. A prompt has several choices, and the scores come with the first of them."""

    def __init__(self, choices: int, best: int | None) -> None:
        """`best` alternatives are told of each token; None where nothing is."""
        self._choices = choices
        self._best = best
        self._ids: dict[int, tuple[int, ...]] = {}
        self._scores: defaultdict[int, list[PositionLogprobs]] = defaultdict(list)
        self._scored = 0

    def begin(self, choice: int, ids: tuple[int, ...]) -> None:
        """Takes the ids of a choice's prompt.

        Raises:
            PacelineError: INVALID_FIELD, the scores of all prompts of the call together are too many to be kept.
        """
        self._ids[self._first(choice)] = ids
        if choice == self._first(choice):
            self._scored += len(ids)
            check_prompt_logprobs(self._best, self._scored)

    def take(self, choice: int, delta: Delta) -> None:
        """Keeps the scores that a delta brings."""
        self._scores[self._first(choice)] += delta.prompt_logprobs

    def ids(self, choice: int) -> tuple[int, ...]:
        """Token ids of a choice's prompt."""
        return self._ids[self._first(choice)]

    def scores(self, choice: int) -> list[PositionLogprobs]:
        """Scores of the tokens of its prompt but the first."""
        return self._scores[self._first(choice)]

    def told(self, choice: int, best: int, spell: Spell) -> list[dict[str, PromptToken] | None]:
        """Scores by position and token id, as vLLM tells them: of the prompt's own token and of the best ones."""
        return [None, *(_position(one, best, spell) for one in self.scores(choice))]

    def _first(self, choice: int) -> int:
        return choice - choice % self._choices


def _position(one: PositionLogprobs, best: int, spell: Spell) -> dict[str, PromptToken]:
    ranks = {token: rank for rank, (token, _) in enumerate(one.top, start=1)}
    scored = dict([one.chosen, *one.top[:best]])
    return {
        str(token): {"logprob": value, "rank": ranks.get(token), "decoded_token": spell(token)[0]}
        for token, value in scored.items()
    }
