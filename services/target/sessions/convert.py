"""Session frames between protobuf and the engine's values."""

from __future__ import annotations

from collections.abc import Sequence

from services.common.device.numerics import Numerics
from services.common.pb.paceline.v1 import target_pb2 as pb
from services.common.pb.paceline.v1 import types_pb2 as types
from services.common.request.constraint import Rule, Thought, Words
from services.common.request.error_convert import duration, to_pb
from services.common.request.errors import invalid_field
from services.common.request.grammar import Grammar
from services.common.request.limits import LIMITS
from services.common.request.sampling_convert import (
    finish_to_pb,
    sampling_from_pb,
    speculation_from_pb,
    stopping_from_pb,
)
from services.common.request.validation import (
    Bounds,
    check_count,
    check_options,
    check_prompt,
    check_prompt_logprobs,
    check_token_ids,
    check_words,
)
from services.target.core.load import Load
from services.target.core.messages import End, Totals, Update
from services.target.core.plan import PositionLogprobs
from services.target.core.request import RequestSpec
from services.target.sessions.sessions import Frame, RoundFrame, StandingFrame

MAX_REQUEST_ID_BYTES = 128
MOST_ENDING = 8192
"""Tokens that may be forced at the end of a thought."""
MOST_GROWTH = 8
"""How much longer than a client's constraint the grammar that a gateway makes of it may be: letters are escaped."""


def start_from_pb(
    message: pb.Start,
    bounds: Bounds,
    default_max_tokens: int,
    latest: float,
    now: float,
    grammar: Grammar | None = None,
) -> RequestSpec:
    """Checks a Start frame as if no gateway had checked it, and makes a request of it.

    Args:
        message: The frame.
        bounds: What the model allows.
        default_max_tokens: Used when the frame sets none.
        latest: Seconds a request may take at most.
        now: Monotonic seconds; the deadline counts from it.
        grammar: The frame's rule, compiled.

    Raises:
        PacelineError: A field is invalid; it is named.
    """
    sampling = sampling_from_pb(message.sampling)
    stopping = stopping_from_pb(message.stopping, default_max_tokens)
    speculation = speculation_from_pb(message.speculation)
    logprobs = message.logprobs if message.HasField("logprobs") else None
    check_options(
        sampling, stopping, speculation, logprobs, message.priority, message.idempotency_key, bounds.vocab_size
    )
    check_prompt(message.token_ids, message.prompt_length, bounds)
    scored = message.prompt_logprobs if message.HasField("prompt_logprobs") else None
    check_prompt_logprobs(scored, message.prompt_length)
    return RequestSpec(
        request_id=message.request_id,
        token_ids=tuple(message.token_ids),
        prompt_length=message.prompt_length,
        sampling=sampling,
        stopping=stopping,
        speculation=speculation,
        logprobs=logprobs,
        priority=message.priority,
        deadline=now + _allowed(message, latest),
        tenant=message.tenant,
        salt=message.tenant_salt,
        key=message.idempotency_key,
        owner=message.owner,
        resumed=message.resumed,
        traceparent=message.traceparent,
        prompt_logprobs=scored,
        grammar=grammar,
    )


def rule_from_pb(message: pb.Rule, bounds: Bounds) -> Rule:
    """Checks what a rule states before it is compiled.

    Raises:
        PacelineError: It is too long, or names tokens that there are not.
    """
    most = MOST_GROWTH * LIMITS.constraint_bytes
    if len(message.grammar) > most:
        raise invalid_field("rule.grammar", f"{len(message.grammar)} characters, at most {most} are allowed")
    words = Words(tuple(message.allowed), tuple(tuple(word.ids) for word in message.banned))
    check_words(words, bounds.vocab_size, "rule.allowed", "rule.banned")
    thought = _thought(message.thought, bounds) if message.HasField("thought") else None
    return Rule(message.grammar, thought, words)


def _thought(message: pb.Thought, bounds: Bounds) -> Thought:
    ending = tuple(message.ending)
    check_count("rule.thought.ending", len(ending), MOST_ENDING)
    check_token_ids((message.opening, message.closing, *ending), bounds.vocab_size, "rule.thought")
    budget = message.budget if message.HasField("budget") else None
    if budget is not None and ending[-1:] != (message.closing,):
        raise invalid_field("rule.thought.ending", "must end with the token that closes the thought")
    return Thought(message.opening, message.closing, message.begun, budget, ending)


def frame_to_pb(frame: Frame) -> pb.SessionResponse:
    """One frame of the stream to a gateway."""
    if isinstance(frame, RoundFrame):
        return pb.SessionResponse(round=_round_to_pb(frame))
    if isinstance(frame, StandingFrame):
        standing = frame.standing
        told = pb.Standing(
            number=frame.number,
            granted=standing.granted,
            requests=standing.requests,
            tokens=standing.tokens,
            gateways=frame.gateways,
        )
        return pb.SessionResponse(standing=told)
    return pb.SessionResponse(go_away=pb.GoAway(grace=duration(frame.grace_s)))


def load_to_pb(load: Load, speculating: bool) -> pb.Load:
    """Load as routing reads it."""
    return pb.Load(
        running=load.running,
        waiting=load.waiting,
        slots=load.slots,
        queued_tokens=load.queued_tokens,
        free_blocks=load.free_blocks,
        total_blocks=load.total_blocks,
        speculating=speculating,
    )


def numerics_to_pb(numerics: Numerics) -> pb.Numerics:
    """How the target computes."""
    return pb.Numerics(
        digest=numerics.digest,
        release=numerics.release,
        device=numerics.device,
        libraries=numerics.libraries,
        dtype=numerics.dtype,
        kv_dtype=numerics.kv_dtype,
        activations=numerics.activations,
    )


def _allowed(message: pb.Start, latest: float) -> float:
    if not message.HasField("timeout"):
        return latest
    return min(max(message.timeout.seconds + message.timeout.nanos / 1e9, 0.0), latest)


def _round_to_pb(frame: RoundFrame) -> pb.Round:
    return pb.Round(
        number=frame.number,
        updates=[_update_to_pb(update) for update in frame.updates],
        load=load_to_pb(frame.load, frame.speculating),
    )


def _update_to_pb(update: Update) -> pb.RequestUpdate:
    scores = update.scores
    return pb.RequestUpdate(
        request_id=update.request_id,
        epoch=update.epoch,
        position=update.position,
        token_ids=update.tokens,
        logprobs=_all_to_pb(update.tokens, update.logprobs) if update.logprobs else (),
        end=None if update.end is None else _end_to_pb(update.end),
        drafted=update.drafted,
        accepted=update.accepted,
        prompt_logprobs=() if scores is None else _all_to_pb(scores.tokens, scores.positions),
        prompt_position=0 if scores is None else scores.start,
    )


def _all_to_pb(tokens: Sequence[int], positions: Sequence[PositionLogprobs]) -> list[types.PositionLogprobs]:
    return [_logprobs_to_pb(*pair) for pair in zip(tokens, positions, strict=False)]


def _logprobs_to_pb(token: int, position: PositionLogprobs) -> types.PositionLogprobs:
    return types.PositionLogprobs(
        chosen=types.TokenLogprob(token_id=token, logprob=position.chosen),
        top=[types.TokenLogprob(token_id=other, logprob=value) for other, value in position.top],
    )


def _end_to_pb(end: End) -> pb.RequestEnd:
    return pb.RequestEnd(
        finish_reason=finish_to_pb(end.reason),
        usage=_usage_to_pb(end.totals),
        speculation=types.SpeculationStats(
            rounds=end.totals.rounds,
            drafted=end.totals.drafted,
            accepted=end.totals.accepted,
            accepted_histogram=end.totals.histogram,
            rounds_by_width=dict(end.totals.by_width),
        ),
        moved=end.moved,
        error=None if end.error is None else to_pb(end.error),
    )


def _usage_to_pb(totals: Totals) -> types.Usage:
    return types.Usage(
        prompt_tokens=totals.prompt_tokens,
        cached_tokens=totals.cached_tokens,
        completion_tokens=totals.completion_tokens,
        queue_time=duration(totals.queue_s),
        prefill_time=duration(totals.prefill_s),
        decode_time=duration(totals.decode_s),
    )
