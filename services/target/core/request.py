"""A request as the target's scheduler sees it: what was asked, and how far it has come."""

from dataclasses import dataclass, field, replace
from enum import Enum

from services.common.request.grammar import Grammar
from services.common.request.sampling import FinishReason, SamplingParams, SpeculationParams, StopParams


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """What was asked. `token_ids` is the prompt (`prompt_length` tokens) and the output committed elsewhere.

    `deadline` is a monotonic time in seconds; `logprobs` the number of best alternatives per position. `owner` is the
    client's request, by a name that is the same on every target. `resumed` says that it has output already. Both serve
    its idempotency `key`. `grammar` is what the output must be like. `prompt_logprobs` is the number of best
    alternatives per position of the prompt; None where nothing of it is told.
    """

    request_id: str
    token_ids: tuple[int, ...]
    prompt_length: int
    sampling: SamplingParams
    stopping: StopParams
    speculation: SpeculationParams = SpeculationParams()
    logprobs: int | None = None
    priority: int = 0
    deadline: float | None = None
    tenant: str = ""
    salt: bytes = b""
    key: str = ""
    owner: str = ""
    resumed: bool = False
    traceparent: str = ""
    grammar: Grammar | None = None
    prompt_logprobs: int | None = None

    @property
    def scored(self) -> bool:
        """Whether the positions of the prompt are scored: until there is output, which is told behind all of them."""
        return self.prompt_logprobs is not None and len(self.token_ids) == self.prompt_length


class State(Enum):
    """Where a request stands."""

    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    ENDED = "ended"


@dataclass(slots=True)
class SpeculationCounts:
    """What speculation did for one request; `histogram[a]` counts the rounds that accepted exactly `a` drafts."""

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    histogram: list[int] = field(default_factory=list)
    by_width: dict[int, int] = field(default_factory=dict)

    def add(self, width: int, drafted: int, accepted: int) -> None:
        """Counts one round in which a row of this request was verified, at a `Plan.width`."""
        self.rounds += 1
        self.drafted += drafted
        self.accepted += accepted
        if accepted >= len(self.histogram):
            self.histogram.extend([0] * (accepted + 1 - len(self.histogram)))
        self.histogram[accepted] += 1
        self.by_width[width] = self.by_width.get(width, 0) + 1


@dataclass(slots=True, eq=False)
class Request:
    """A client's request on this target; owned and changed by the scheduler alone.

    `tokens` is the prompt and everything committed. `computed` is 0 while it waits. In prefill it counts the tokens
    that were found in the prefix cache or planned so far. Once a token was chosen it is `len(tokens) - 1`: all but the
    anchor, and nothing of rounds in flight. `verified` is what it was when the latest committed round began.

    With `grows` it gets blocks as it is computed, and else all for `limit` tokens when it is admitted.

    With recurrent states: `snapshot` is where those of `cached_tokens` are, `kept` how many tokens the latest ones hold
    that were found or kept, and `branch` where a chunk ends so that they can be kept; 0 where none need end.
    """

    uid: int
    spec: RequestSpec
    session: object
    arrived: float
    limit: int
    stop_ids: frozenset[int]
    order: tuple[float, int]
    tokens: list[int]
    state: State = State.WAITING
    slot: int | None = None
    epoch: int = 0
    blocks: list[int] = field(default_factory=list)
    hashes: list[bytes] = field(default_factory=list)
    hashed_blocks: int = 0
    computed: int = 0
    prefill_to: int = 0
    verified: int = 0
    cached_tokens: int = 0
    snapshot: int | None = None
    kept: int = 0
    branch: int = 0
    grows: bool = False
    preemptions: int = 0
    admitted: float | None = None
    first_token: float | None = None
    ended: float | None = None
    end: FinishReason | None = None
    stats: SpeculationCounts = field(default_factory=SpeculationCounts)

    @property
    def generated(self) -> int:
        """Output tokens committed, those committed elsewhere included."""
        return len(self.tokens) - self.spec.prompt_length

    @property
    def output(self) -> tuple[int, ...]:
        """The output committed so far."""
        return tuple(self.tokens[self.spec.prompt_length :])

    def present_spec(self) -> RequestSpec:
        """The spec to prefill now: the request with everything committed so far, as after a move from elsewhere."""
        if len(self.tokens) == len(self.spec.token_ids):
            return self.spec
        return replace(self.spec, token_ids=tuple(self.tokens))
