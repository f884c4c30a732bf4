"""What the engine tells the session service: plain values, handed over once a round."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from services.common.request.errors import PacelineError
from services.common.request.sampling import FinishReason
from services.target.core.load import Load
from services.target.core.plan import PositionLogprobs, PromptScores


@dataclass(frozen=True, slots=True)
class Totals:
    """What a request used on this target; times in seconds."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    queue_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    histogram: tuple[int, ...] = ()
    by_width: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class End:
    """How a request left the target: exactly one of reason, moved and error is set."""

    reason: FinishReason | None = None
    moved: bool = False
    error: PacelineError | None = None
    totals: Totals = Totals()


class Update(NamedTuple):
    """What became of one request; ``position`` is the index of the first token in the output.

    The round had ``drafted`` draft tokens for it, of which the first ``accepted`` are the first of ``tokens``.
    """

    request_id: str
    epoch: int = 0
    position: int = 0
    tokens: tuple[int, ...] = ()
    logprobs: tuple[PositionLogprobs, ...] = ()
    end: End | None = None
    drafted: int = 0
    accepted: int = 0
    scores: PromptScores | None = None


@dataclass(frozen=True, slots=True)
class RoundNews:
    """All updates of one round, by session; a heartbeat has none."""

    number: int
    load: Load
    speculating: bool
    by_session: dict[int, list[Update]] = field(default_factory=dict)
