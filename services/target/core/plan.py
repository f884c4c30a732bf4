"""Plain values of a round: the scheduler's plan, the runner's outcomes, and the progress of requests."""

from dataclasses import dataclass, field
from typing import NamedTuple

from services.common.request.sampling import FinishReason
from services.target.core.request import Request, RequestSpec
from services.target.core.width import Ragged, Tree, Width


@dataclass(frozen=True, slots=True)
class Save:
    """The recurrent states of a slot, which hold its first `folded` tokens, go to the place `snapshot`.

    `name` is that of the K/V block that ends there.
    """

    slot: int
    folded: int
    snapshot: int
    name: bytes


@dataclass(frozen=True, slots=True)
class Chunk:
    """Prompt tokens to compute at positions `start ..`; after the `last` one the first token is chosen.

    After it come its `saves`, at most one.
    """

    slot: int
    epoch: int
    start: int
    token_ids: tuple[int, ...]
    last: bool
    saves: tuple[Save, ...] = ()


@dataclass(frozen=True, slots=True)
class Admission:
    """A waiting request gets a slot. The first `cached` tokens of `spec.token_ids` are in `blocks` already.

    Recurrent states of them are at the place `snapshot`.
    """

    slot: int
    epoch: int
    spec: RequestSpec
    blocks: tuple[int, ...]
    cached: int
    snapshot: int | None = None


class Move(NamedTuple):
    """The place of a block in layers with a window, from this round on; 0: none."""

    block: int
    place: int


@dataclass(frozen=True, slots=True)
class Growth:
    """Blocks to append to a slot's block table."""

    slot: int
    blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """One round. The runner applies saves, releases, admissions, growth and chunks in this order, then verifies `rows`.

    A slot is the place of a running request on the device. Its `epoch` rises whenever a request gets or leaves it. The
    pad slot, behind all others, belongs to none.

    A row is a slot that decodes in this round. Each row verifies `width` tokens: its anchor, which is the last
    committed token, and `width - 1` drafts: a chain, or with `nodes` a tree. A round of width 1 is plain. The forward
    has `bucket` rows, the smallest captured number that holds them all; the rest are the pad slot's. In a `ragged`
    round each row verifies as many tokens as `takes` says, `width` at most, and the rest of `ragged.rows` are padding.

    A slot may be released and admitted in one plan, and have two chunks; one whose last chunk is here is not in `rows`.
    `saves` are of slots that were left. `behind_prompts`: a round that may still run has chunks. Rows have `context`
    tokens together, those of rounds in flight left out. `moves` come before all else. In a `drawn` round some request
    draws its tokens.

    `empty` means that there is nothing to compute: the scheduler then leaves all else to a later plan. `speculative`
    means that the drafter is asked; a plain round does not visit it. `kind` is what the policy of widths chose.
    """

    number: int
    width: int
    rows: tuple[int, ...]
    bucket: int
    chunks: tuple[Chunk, ...]
    admissions: tuple[Admission, ...]
    grown: tuple[Growth, ...]
    released: tuple[int, ...]
    saves: tuple[Save, ...] = ()
    behind_prompts: bool = False
    drawn: bool = False
    context: int = 0
    nodes: bool = False
    moves: tuple[Move, ...] = ()
    ragged: Ragged | None = None
    takes: tuple[int, ...] = ()
    empty: bool = field(init=False)
    speculative: bool = field(init=False)
    kind: Width = field(init=False)

    def __post_init__(self) -> None:
        """Judges once what a round asks for several times."""
        object.__setattr__(self, "empty", not self.rows and not self.chunks)
        object.__setattr__(self, "speculative", self.width > 1 and bool(self.rows))
        object.__setattr__(self, "kind", self.ragged or (Tree(self.width) if self.nodes else self.width))

    @property
    def prompts_alone(self) -> bool:
        """True when prompts are computed and no row decodes."""
        return bool(self.chunks) and not self.rows

    @property
    def slots(self) -> frozenset[int]:
        """Slots that the round computes, and those that get a request or blocks in it."""
        given = (*(admission.slot for admission in self.admissions), *(growth.slot for growth in self.grown))
        return frozenset((*self.rows, *(chunk.slot for chunk in self.chunks), *given))

    @property
    def every_save(self) -> tuple[Save, ...]:
        """Saves of slots that were left, and of prompts."""
        return (*self.saves, *(save for chunk in self.chunks for save in chunk.saves))

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens computed in this round."""
        return sum(len(chunk.token_ids) for chunk in self.chunks)


class PositionLogprobs(NamedTuple):
    """Log-probability of the chosen token, and the best (token id, log-probability) pairs, best first."""

    chosen: float
    top: tuple[tuple[int, float], ...]


class PromptScores(NamedTuple):
    """Log-probabilities of `tokens` of a prompt, of which the first has the position `start`; never of position 0."""

    slot: int
    epoch: int
    start: int
    tokens: tuple[int, ...]
    positions: tuple[PositionLogprobs, ...]


class Outcome(NamedTuple):
    """What a round committed for one row or one last chunk; a stop token that ends the request is included.

    `drafted` counts the valid drafts of the row, `accepted` those that matched. Of a tree `path` are the rows of these,
    and `children` their places among the children of their parents, the first being 1. `trunk` are the first two
    rows of the path of first children, which is what a chain would have been.
    """

    slot: int
    epoch: int
    tokens: tuple[int, ...]
    accepted: int = 0
    drafted: int = 0
    end: FinishReason | None = None
    logprobs: tuple[PositionLogprobs, ...] | None = None
    path: tuple[int, ...] = ()
    trunk: tuple[int, ...] = ()
    children: tuple[int, ...] = ()


class Progress(NamedTuple):
    """What one round brought one request; `position` is the output index of the first of `tokens`.

    `width` is 0 for the first token, which prefill chose and no row verified. Of a tree `path` are the rows of accepted
    drafts, and `children` their places among the children of their parents.
    """

    request: Request
    position: int
    tokens: tuple[int, ...]
    logprobs: tuple[PositionLogprobs, ...] | None
    accepted: int
    drafted: int
    width: int
    end: FinishReason | None
    path: tuple[int, ...] = ()
    children: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Commit:
    """What a committed round brought its requests; `discarded` counts tokens whose epoch was no longer the slot's.

    `round_us` is the time of a speculative round that held no prefill, and `plain_us` what plain rounds of its bucket
    would have taken for its tokens; both are 0 for others.
    """

    progress: tuple[Progress, ...]
    discarded: int
    round_us: float = 0.0
    plain_us: float = 0.0
