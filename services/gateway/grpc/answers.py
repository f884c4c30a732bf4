"""What the gateway answers over gRPC: the events of a stream as messages."""

from services.common.pb.paceline.v1 import inference_pb2, types_pb2
from services.common.request.error_convert import duration
from services.common.request.errors import invalid_field
from services.common.request.limits import LIMITS
from services.common.request.sampling_convert import finish_to_pb
from services.gateway.streams.events import Delta, Final
from services.gateway.streams.streams import Context
from services.gateway.targets.messages import PositionLogprobs, ScoredToken, Speculation


def messages(request_id: str, event: Delta | Final) -> tuple[inference_pb2.GenerateResponse]:
    """The one message of an event."""
    return (delta(request_id, event) if isinstance(event, Delta) else final(request_id, event),)


class Whole:
    """A call whose client wants one message: gathers those of the stream in it."""

    def __init__(self, context: Context) -> None:
        """Nothing has come yet."""
        self._message = inference_pb2.GenerateWholeResponse()
        self._texts: list[str] = []
        self._kept = 0
        self.invocation_metadata = context.invocation_metadata
        self.time_remaining = context.time_remaining
        self.send_initial_metadata = context.send_initial_metadata

    async def write(self, message: inference_pb2.GenerateResponse) -> None:
        """Takes the next message of the stream.

        Raises:
            PacelineError: INVALID_FIELD, it has more log-probabilities than are kept.
        """
        whole, piece = self._message, message.delta
        self._kept += sum(1 + len(one.top) for one in piece.logprobs)
        if self._kept > LIMITS.prompt_scores:
            raise invalid_field(
                "logprobs", f"more than {LIMITS.prompt_scores} in one answer; stream it, or ask for fewer"
            )
        whole.request_id = message.request_id
        whole.token_ids.extend(piece.token_ids)
        self._texts.append(piece.text)
        whole.logprobs.extend(piece.logprobs)
        whole.prompt_logprobs.extend(piece.prompt_logprobs)
        if message.HasField("final"):
            whole.final.CopyFrom(message.final)

    def message(self) -> inference_pb2.GenerateWholeResponse:
        """All of it."""
        self._message.text = "".join(self._texts)
        return self._message


def delta(request_id: str, event: Delta) -> inference_pb2.GenerateResponse:
    """A piece of the output."""
    return inference_pb2.GenerateResponse(
        request_id=request_id,
        delta=inference_pb2.Delta(
            position=event.position,
            token_ids=event.token_ids,
            text=event.text,
            logprobs=[_position(one) for one in event.logprobs] if event.logprobs else (),
            drafted=event.drafted,
            accepted=event.accepted,
            prompt_logprobs=[_position(one) for one in event.prompt_logprobs] if event.prompt_logprobs else (),
        ),
    )


def final(request_id: str, event: Final) -> inference_pb2.GenerateResponse:
    """The end of the output."""
    usage = event.totals.usage
    return inference_pb2.GenerateResponse(
        request_id=request_id,
        final=inference_pb2.Final(
            finish_reason=finish_to_pb(event.reason),
            usage=types_pb2.Usage(
                prompt_tokens=event.prompt_tokens,
                cached_tokens=usage.cached_tokens,
                completion_tokens=event.completion_tokens,
                queue_time=duration(usage.queue_s),
                prefill_time=duration(usage.prefill_s),
                decode_time=duration(usage.decode_s),
                migrations=event.totals.migrations,
                reasoning_tokens=event.reasoning_tokens,
            ),
            model_revision=event.revision,
            speculation=_speculation(event.totals.speculation),
            seed=event.seed,
            numerics_changed=event.totals.numerics_changed,
            prompt_token_ids=event.prompt_ids,
        ),
    )


def _scored(token: ScoredToken) -> types_pb2.TokenLogprob:
    return types_pb2.TokenLogprob(token_id=token[0], logprob=token[1])


def _position(one: PositionLogprobs) -> types_pb2.PositionLogprobs:
    return types_pb2.PositionLogprobs(chosen=_scored(one.chosen), top=[_scored(token) for token in one.top])


def _speculation(found: Speculation) -> types_pb2.SpeculationStats:
    longest = max(found.histogram, default=-1)
    return types_pb2.SpeculationStats(
        rounds=found.rounds,
        drafted=found.drafted,
        accepted=found.accepted,
        accepted_histogram=[found.histogram[accepted] for accepted in range(longest + 1)],
        rounds_by_width=dict(found.by_width),
    )
