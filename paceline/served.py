"""What a gateway tells of its model and of its pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.v1 import inference_pb2, types_pb2


@dataclass(frozen=True)
class Model:
    """What is served, and every limit."""

    name: str
    """Its public name."""
    revision: str
    """Digest of its checkpoint."""
    context_limit: int
    """Longest prompt and output together, in tokens."""
    max_draft: int
    """Longest draft in tokens; 0 without a drafter."""
    vocab_size: int
    """Size of its vocabulary."""
    eos_token_ids: Sequence[int]
    """Tokens that end a text."""
    dtype: str
    """Type of the weights in use: float32, bfloat16 or float64."""
    limits: Mapping[str, int]
    """Limits of a request by name, such as max_stop_strings."""
    proposer: str
    """Who drafts: dflash, ngram or none."""


@dataclass(frozen=True)
class Activity:
    """What a pair does, or all of them together; speeds are those of the latest seconds."""

    running: int
    """Requests that decode."""
    waiting: int
    """Requests that wait."""
    slots: int
    """Requests that may run at once."""
    queued_tokens: int
    """Prompt tokens that wait for prefill."""
    free_blocks: int
    """Free blocks of the K/V cache, those that may be evicted included."""
    total_blocks: int
    """All blocks of the K/V cache."""
    tokens_per_second: float
    """Output tokens per second."""
    tokens_per_round: float
    """Mean tokens that a request got per round, tau; 0 without a round."""
    rounds_by_width: Mapping[int, int]
    """Rounds by the rows that each request had in them; 1 is a round without drafts."""


@dataclass(frozen=True)
class Pair:
    """One target with its drafter."""

    pair_id: str
    """Its name, which stays."""
    ready: bool
    """It takes new requests."""
    speculating: bool
    """Its drafter is attached and healthy."""
    proposer: str
    """Who drafts: dflash, ngram or none."""
    activity: Activity
    """What it does."""
    numerics: str
    """Digest of how it computes; pairs of one digest write the same text. Empty while unknown."""
    away: str = ""
    """Why it takes no new requests, in words; empty while it does."""
    model: str = ""
    """Name of the model that it serves; empty while unknown."""


@dataclass(frozen=True)
class Status:
    """How busy the pairs are."""

    model: str
    """Name of the model, of several the one that requests without a name are for; empty while it is unknown."""
    pairs: int
    """Pairs that the gateway knows."""
    ready_pairs: int
    """Pairs that take new requests."""
    total: Activity
    """All pairs together."""
    each: Sequence[Pair]
    """Each pair; none where the gateway has tenants."""
    models: Sequence[str] = ()
    """Names of all models that pairs have told of."""


def model(told: types_pb2.ModelInfo) -> Model:
    """The model of a message."""
    return Model(
        name=told.name,
        revision=told.revision,
        context_limit=told.context_limit,
        max_draft=told.max_draft,
        vocab_size=told.vocab_size,
        eos_token_ids=tuple(told.eos_token_ids),
        dtype=told.dtype,
        limits=dict(told.limits),
        proposer=told.proposer,
    )


def status(told: inference_pb2.GetStatusResponse) -> Status:
    """The status of a message."""
    each = tuple(_pair(one) for one in told.each)
    return Status(told.model, told.pairs, told.ready_pairs, _activity(told.total), each, tuple(told.models))


def _pair(told: inference_pb2.PairStatus) -> Pair:
    return Pair(
        pair_id=told.pair_id,
        ready=told.ready,
        speculating=told.speculating,
        proposer=told.proposer,
        activity=_activity(told.activity),
        numerics=told.numerics,
        away=told.away,
        model=told.model,
    )


def _activity(told: inference_pb2.Activity) -> Activity:
    return Activity(
        running=told.running,
        waiting=told.waiting,
        slots=told.slots,
        queued_tokens=told.queued_tokens,
        free_blocks=told.free_blocks,
        total_blocks=told.total_blocks,
        tokens_per_second=told.tokens_per_second,
        tokens_per_round=told.tokens_per_round,
        rounds_by_width=dict(told.rounds_by_width),
    )
