"""Frames of a target as plain values; `outgoing` makes those that it is sent."""

from collections.abc import Iterable

from services.common.pb.paceline.v1 import target_pb2, types_pb2
from services.common.request.error_convert import from_pb
from services.common.request.errors import Code, PacelineError, Reason
from services.common.request.sampling import FinishReason
from services.common.request.sampling_convert import finish_from_pb
from services.gateway.targets.messages import (
    End,
    Finished,
    Load,
    Model,
    Moved,
    PositionLogprobs,
    Refused,
    Speculation,
    Standing,
    Update,
    Usage,
)


def held(message: target_pb2.RequestUpdate) -> PacelineError | None:
    """The error of a key that another generation holds; None where none does."""
    return from_pb(message.end.error) if message.end.HasField("error") else None


def standing(message: target_pb2.Standing) -> Standing:
    """What a tenant has over all gateways."""
    return Standing(message.number, message.granted, message.requests, message.tokens, message.gateways)


def update(message: target_pb2.RequestUpdate) -> Update:
    """News of one request."""
    logprobs = tuple(_position(one) for one in message.logprobs) if message.logprobs else ()
    end = _end(message.end) if message.HasField("end") else None
    scores = tuple(_position(one) for one in message.prompt_logprobs) if message.prompt_logprobs else ()
    return Update(
        message.position,
        tuple(message.token_ids),
        logprobs,
        end,
        message.drafted,
        message.accepted,
        scores=scores,
        scored_from=message.prompt_position,
    )


def unable(position: int, features: Iterable[str]) -> Update:
    """The refusal of a target of another build, which lacks features: another one may have them."""
    why = f"this target lacks what the request needs: {', '.join(sorted(features))}"
    return Update(position, (), (), Refused(PacelineError(Code.UNAVAILABLE, Reason.NO_TARGET, why)), 0, 0)


def load(message: target_pb2.Load) -> Load:
    """Load of a target."""
    return Load(
        message.running,
        message.waiting,
        message.slots,
        message.queued_tokens,
        message.speculating,
        message.free_blocks,
        message.total_blocks,
    )


def model(welcome: target_pb2.Welcome) -> Model:
    """What a target serves."""
    message = welcome.model
    return Model(
        name=message.name,
        revision=message.revision,
        context_limit=message.context_limit,
        max_draft=message.max_draft,
        vocab_size=message.vocab_size,
        eos_token_ids=tuple(message.eos_token_ids),
        dtype=message.dtype,
        proposer=message.proposer,
        numerics=welcome.numerics.digest,
    )


def _position(message: types_pb2.PositionLogprobs) -> PositionLogprobs:
    chosen = (message.chosen.token_id, message.chosen.logprob)
    return PositionLogprobs(chosen, ((one.token_id, one.logprob) for one in message.top))


def _end(message: target_pb2.RequestEnd) -> End:
    if message.HasField("error"):
        return Refused(from_pb(message.error))
    usage, speculation = _usage(message.usage), _speculation(message.speculation)
    if message.moved:
        return Moved(usage, speculation)
    reason = finish_from_pb(message.finish_reason)
    if reason is None or reason is FinishReason.ERROR:
        return Refused(PacelineError(Code.INTERNAL, Reason.INTERNAL, "the target failed the request"))
    return Finished(reason, usage, speculation)


def _usage(message: types_pb2.Usage) -> Usage:
    return Usage(
        cached_tokens=message.cached_tokens,
        queue_s=message.queue_time.ToNanoseconds() / 1e9,
        prefill_s=message.prefill_time.ToNanoseconds() / 1e9,
        decode_s=message.decode_time.ToNanoseconds() / 1e9,
    )


def _speculation(message: types_pb2.SpeculationStats) -> Speculation:
    found = Speculation(message.rounds, message.drafted, message.accepted)
    found.histogram.update({accepted: count for accepted, count in enumerate(message.accepted_histogram) if count})
    found.by_width.update(dict(message.rounds_by_width))
    return found
