"""What targets report about requests, as plain values; knows no protobuf."""

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import chain

from services.common.request.errors import PacelineError
from services.common.request.sampling import FinishReason

ScoredToken = tuple[int, float]
"""A token id and the natural logarithm of its probability."""


class PositionLogprobs:
    """Log-probabilities at one position of the output: of the token chosen and of the best ones, best first.

    Those are kept as numbers: as objects they would take six times the memory, while a client does not read.
    """

    __slots__ = ("_top", "chosen")

    def __init__(self, chosen: ScoredToken, top: Iterable[ScoredToken]) -> None:
        """Takes the token chosen, and the best ones."""
        self.chosen = chosen
        self._top = array("d", chain.from_iterable(top))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PositionLogprobs):
            return NotImplemented
        return self.chosen == other.chosen and self._top == other._top

    def __hash__(self) -> int:
        return hash(self.chosen)

    def __repr__(self) -> str:
        return f"PositionLogprobs({self.chosen}, {self.top})"

    @property
    def top(self) -> tuple[ScoredToken, ...]:
        """The best ones, made anew."""
        numbers = iter(self._top)
        return tuple((int(token), value) for token, value in zip(numbers, numbers, strict=True))

    @property
    def alternatives(self) -> int:
        """How many are the best ones."""
        return len(self._top) // 2


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and times of a request on one target."""

    cached_tokens: int = 0
    queue_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0


@dataclass(slots=True)
class Speculation:
    """Speculation of a request; `histogram[a]` counts rounds that accepted exactly `a` draft tokens."""

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    histogram: Counter[int] = field(default_factory=Counter)
    by_width: Counter[int] = field(default_factory=Counter)

    def add(self, other: "Speculation") -> None:
        """Adds what another target counted."""
        self.rounds += other.rounds
        self.drafted += other.drafted
        self.accepted += other.accepted
        self.histogram.update(other.histogram)
        self.by_width.update(other.by_width)


@dataclass(frozen=True, slots=True)
class Finished:
    """The request ended on its target; usage and speculation are those of this target only."""

    reason: FinishReason
    usage: Usage = Usage()
    speculation: Speculation = field(default_factory=Speculation)


@dataclass(frozen=True, slots=True)
class Moved:
    """The target drains; the request continues elsewhere."""

    usage: Usage = Usage()
    speculation: Speculation = field(default_factory=Speculation)


@dataclass(frozen=True, slots=True)
class Refused:
    """The target refused the request or failed it."""

    error: PacelineError


@dataclass(frozen=True, slots=True)
class Lost:
    """The target is gone; how far it came beyond its last message is unknown."""

    why: str


End = Finished | Moved | Refused | Lost


@dataclass(frozen=True, slots=True)
class Update:
    """News of one request: tokens from `position` of the output on, and the end if it came.

    In the rounds that committed them `drafted` tokens were proposed and `accepted` of these taken. An update of several
    rounds has the number of tokens and of accepted drafts of each in `rounds`. `scores` are those of the prompt's
    tokens from `scored_from` on.
    """

    position: int
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[PositionLogprobs, ...] = ()
    end: End | None = None
    drafted: int = 0
    accepted: int = 0
    rounds: tuple[tuple[int, int], ...] = ()
    scores: tuple[PositionLogprobs, ...] = ()
    scored_from: int = 0

    def scored_behind(self, position: int) -> "Update":
        """The same without scores of tokens before a position, which were told before."""
        known = max(position - self.scored_from, 0)
        if not (self.scores and known):
            return self
        return replace(self, scores=self.scores[known:], scored_from=self.scored_from + known)


@dataclass(frozen=True, slots=True)
class Load:
    """Load of a target as of its last frame."""

    running: int = 0
    waiting: int = 0
    slots: int = 1
    queued_tokens: int = 0
    speculating: bool = False
    free_blocks: int = 0
    total_blocks: int = 0


@dataclass(frozen=True, slots=True)
class Use:
    """What a tenant has at this gateway; `claims` requests ask to run with so many tokens beside, all or none.

    Numbers increase with each statement. What was granted after `heard` is not part of what it states.
    """

    number: int
    heard: int
    tenant: str
    requests: int
    tokens: int
    claims: int = 0
    claimed_tokens: int = 0
    most_requests: int = 0
    most_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """What a tenant has over all gateways that have a session with a target, by the number of the statement before."""

    number: int
    granted: bool
    requests: int
    tokens: int
    gateways: int


@dataclass(frozen=True, slots=True)
class PastRound:
    """One of a target's latest rounds: its width W, requests that decoded, tokens and drafts, seconds since its end."""

    number: int
    width: int
    requests: int
    committed: int
    accepted: int
    age_s: float


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """What a target computes with: requests go on with the same checkpoint only, and best with the same numerics."""

    revision: str
    numerics: str


@dataclass(frozen=True, slots=True)
class Model:
    """What a target serves; `numerics` is a digest of how it rounds, empty where the target does not say."""

    name: str
    revision: str
    context_limit: int
    max_draft: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    dtype: str
    proposer: str
    numerics: str = ""

    @property
    def arithmetic(self) -> Arithmetic:
        """What decides its texts beside the request."""
        return Arithmetic(self.revision, self.numerics or self.dtype)
