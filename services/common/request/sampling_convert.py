"""Protobuf to and from sampling.py; counts of repeated fields are checked before contents are read."""

from services.common.pb.paceline.v1 import types_pb2
from services.common.request.limits import LIMITS
from services.common.request.sampling import RANGES, FinishReason, SamplingParams, SpeculationParams, StopParams
from services.common.request.validation import check_count

_FINISH_TO_PB = {reason: types_pb2.FinishReason.Value(f"FINISH_REASON_{reason.name}") for reason in FinishReason}
_FINISH_FROM_PB = {number: reason for reason, number in _FINISH_TO_PB.items()}


def sampling_from_pb(message: types_pb2.Sampling) -> SamplingParams:
    """Fields that are absent take their defaults; an absent seed becomes 0."""
    check_count("sampling.logit_bias", len(message.logit_bias), LIMITS.logit_bias)
    given = {field.name: value for field, value in message.ListFields() if field.name in RANGES}
    return SamplingParams(**given, logit_bias=tuple(sorted(message.logit_bias.items())))


def sampling_to_pb(sampling: SamplingParams) -> types_pb2.Sampling:
    """Sampling as a message, in which every field is set."""
    numbers = {name: getattr(sampling, name) for name in RANGES}
    return types_pb2.Sampling(**numbers, logit_bias=dict(sampling.logit_bias))


def stopping_from_pb(message: types_pb2.Stopping, default_max_tokens: int) -> StopParams:
    """An absent max_tokens takes the default given."""
    check_count("stopping.stop", len(message.stop), LIMITS.stop_strings)
    check_count("stopping.stop_token_ids", len(message.stop_token_ids), LIMITS.stop_token_ids)
    return StopParams(
        max_tokens=message.max_tokens if message.HasField("max_tokens") else default_max_tokens,
        min_tokens=message.min_tokens,
        stop=tuple(message.stop),
        stop_token_ids=tuple(message.stop_token_ids),
        ignore_eos=message.ignore_eos,
    )


def stopping_to_pb(stopping: StopParams) -> types_pb2.Stopping:
    """All fields set but the stop strings: those are the gateway's own and never sent to a target."""
    return types_pb2.Stopping(
        max_tokens=stopping.max_tokens,
        min_tokens=stopping.min_tokens,
        stop_token_ids=stopping.stop_token_ids,
        ignore_eos=stopping.ignore_eos,
    )


def speculation_from_pb(message: types_pb2.Speculation) -> SpeculationParams:
    """An absent longest draft stays None."""
    return SpeculationParams(message.off, message.max_draft if message.HasField("max_draft") else None)


def speculation_to_pb(speculation: SpeculationParams) -> types_pb2.Speculation:
    """Wishes for drafts as a message; what is None stays absent."""
    return types_pb2.Speculation(off=speculation.off, max_draft=speculation.max_draft)


def finish_to_pb(reason: FinishReason | None) -> types_pb2.FinishReason.ValueType:
    """Why an output ended, as a number of the contract; None becomes UNSPECIFIED."""
    return types_pb2.FINISH_REASON_UNSPECIFIED if reason is None else _FINISH_TO_PB[reason]


def finish_from_pb(number: types_pb2.FinishReason.ValueType) -> FinishReason | None:
    """UNSPECIFIED and numbers this version does not know become None."""
    return _FINISH_FROM_PB.get(number)
