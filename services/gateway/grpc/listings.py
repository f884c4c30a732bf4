"""What the gateway tells over gRPC of its models and of how busy they are, as messages."""

from collections.abc import Iterable

from services.common.pb.paceline.v1 import inference_pb2, types_pb2
from services.gateway.targets.messages import Load, Model
from services.gateway.targets.status import Pace, PairState, Status


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
