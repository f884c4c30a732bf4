"""Frames of a session with a gateway, as messages."""

from __future__ import annotations

from collections.abc import Sequence

from services.common.device.numerics import Numerics
from services.common.pb.paceline.v1 import target_pb2 as pb
from services.common.pb.paceline.v1 import types_pb2 as types
from services.common.request.error_convert import duration, to_pb
from services.common.request.sampling_convert import (
    finish_to_pb,
)
from services.target.core.load import Load
from services.target.core.messages import End, Totals, Update
from services.target.core.plan import PositionLogprobs
from services.target.sessions.sessions import Frame, RoundFrame, StandingFrame


def frame_to_pb(frame: Frame) -> pb.SessionResponse:
    """One frame of the stream to a gateway."""
    if isinstance(frame, RoundFrame):
        return _round_to_pb(frame)
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


def _round_to_pb(frame: RoundFrame) -> pb.SessionResponse:
    """Makes updates in their place: a message that is given to the constructor of another is copied."""
    load = load_to_pb(frame.load, frame.speculating)
    told = pb.SessionResponse(round=pb.Round(number=frame.number, load=load))
    add = told.round.updates.add
    for update in frame.updates:
        _fill(add(), update)
    return told


def _fill(message: pb.RequestUpdate, update: Update) -> None:
    """Writes what most updates have, field by field, and what is rare only where it is there."""
    message.request_id = update.request_id
    message.epoch = update.epoch
    message.position = update.position
    message.token_ids.extend(update.tokens)
    message.drafted = update.drafted
    message.accepted = update.accepted
    if update.logprobs:
        message.logprobs.extend(_all_to_pb(update.tokens, update.logprobs))
    if update.end is not None:
        message.end.CopyFrom(_end_to_pb(update.end))
    if update.scores is not None:
        message.prompt_logprobs.extend(_all_to_pb(update.scores.tokens, update.scores.positions))
        message.prompt_position = update.scores.start


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
