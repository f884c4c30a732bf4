"""What a generation yields: tokens with the text that became final with them, and the end."""

from dataclasses import dataclass

from services.common.request.sampling import FinishReason
from services.gateway.prompts.thought import ThoughtCount
from services.gateway.streams.journey import Totals
from services.gateway.targets.messages import PositionLogprobs


@dataclass(frozen=True, slots=True)
class Delta:
    """Tokens from `position` of the output on, and the text that became final with them.

    The rounds that committed them proposed `drafted` tokens and accepted `accepted` of these. A delta of several rounds
    has the number of tokens and of accepted drafts of each in `rounds`. `prompt_logprobs` are of the next tokens of the
    prompt, from its second one on; they come before the first token. Behind the `last` one the end follows at once.
    """

    position: int
    token_ids: tuple[int, ...]
    text: str
    logprobs: tuple[PositionLogprobs, ...] = ()
    drafted: int = 0
    accepted: int = 0
    rounds: tuple[tuple[int, int], ...] = ()
    prompt_logprobs: tuple[PositionLogprobs, ...] = ()
    last: bool = False


@dataclass(frozen=True, slots=True)
class Final:
    """The end of the output; `matched` is the stop string that ended it, `last_token` the last of its tokens.

    `prompt_ids` is empty where it was not asked for, and so are `reasoning_tokens` none.
    """

    reason: FinishReason
    matched: str
    last_token: int | None
    prompt_tokens: int
    completion_tokens: int
    totals: Totals
    revision: str
    seed: int
    prompt_ids: tuple[int, ...] = ()
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Shown:
    """What the final event tells: tokens `cached` by the prefix cache, ids of the `prompt`, tokens of a `thought`."""

    cached: bool = True
    prompt: bool = False
    thought: ThoughtCount | None = None
