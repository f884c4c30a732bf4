"""What the gateway answers over gRPC: events of a stream, models and status, as messages."""

from collections.abc import Iterable

from services.common.pb.paceline.v1 import inference_pb2, types_pb2
from services.common.request.error_convert import duration
from services.common.request.sampling_convert import (
    finish_to_pb,
)
from services.gateway.streams.generation import Delta, Final
from services.gateway.streams.streams import Context
from services.gateway.targets.messages import Load, Model, PositionLogprobs, ScoredToken, Speculation
from services.gateway.targets.status import Pace, PairState, Status


def messages(request_id: str, event: Delta | Final) -> tuple[inference_pb2.GenerateResponse]:
    """The one message of an event."""
    return (delta(request_id, event) if isinstance(event, Delta) else final(request_id, event),)


class Whole:
    """A call whose client wants one message: gathers those of the stream in it."""

    def __init__(self, context: Context) -> None:
        """Nothing has come yet."""
        self._message = inference_pb2.GenerateWholeResponse()
        self._texts: list[str] = []
        self.invocation_metadata = context.invocation_metadata
        self.time_remaining = context.time_remaining
        self.send_initial_metadata = context.send_initial_metadata

    async def write(self, message: inference_pb2.GenerateResponse) -> None:
        """Takes the next message of the stream."""
        whole, piece = self._message, message.delta
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


def model_info(model: Model, limits: dict[str, int]) -> types_pb2.ModelInfo:
    """What is served."""
    return types_pb2.ModelInfo(
        name=model.name,
        revision=model.revision,
        context_limit=model.context_limit,
        max_draft=model.max_draft,
        vocab_size=model.vocab_size,
        eos_token_ids=model.eos_token_ids,
        dtype=model.dtype,
        limits=limits,
        proposer=model.proposer,
    )


def served_models(
    told: Iterable[tuple[Model, tuple[str, ...]]], limits: dict[str, int]
) -> inference_pb2.ListModelsResponse:
    """Every model with its aliases."""
    return inference_pb2.ListModelsResponse(
        models=[inference_pb2.ServedModel(model=model_info(model, limits), aliases=aliases) for model, aliases in told]
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


def status(found: Status, model: str, models: Iterable[str], details: bool) -> inference_pb2.GetStatusResponse:
    """How busy the pairs are; `details` tells them one by one."""
    return inference_pb2.GetStatusResponse(
        model=model,
        models=models,
        pairs=len(found.pairs),
        ready_pairs=sum(pair.ready for pair in found.pairs),
        total=_activity(found.load, found.pace),
        each=[_pair(pair) for pair in found.pairs] if details else (),
    )


def _pair(pair: PairState) -> inference_pb2.PairStatus:
    load = pair.load or Load(slots=0)
    return inference_pb2.PairStatus(
        pair_id=pair.pair_id,
        ready=pair.ready,
        speculating=load.speculating,
        proposer=pair.proposer,
        activity=_activity(load, pair.pace),
        numerics=pair.numerics,
        away=pair.away,
        model=pair.model,
    )


def _activity(load: Load, pace: Pace) -> inference_pb2.Activity:
    return inference_pb2.Activity(
        running=load.running,
        waiting=load.waiting,
        slots=load.slots,
        queued_tokens=load.queued_tokens,
        free_blocks=load.free_blocks,
        total_blocks=load.total_blocks,
        tokens_per_second=pace.tokens_per_second,
        tokens_per_round=pace.tokens_per_round,
        rounds_by_width=pace.by_width,
    )
