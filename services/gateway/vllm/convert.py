"""The messages of vllm.grpc.engine to and from plain values. What is not offered is refused, never ignored."""

from collections.abc import Iterable
from typing import Any

from services.common.request.constraint import Constraint, Form
from services.common.request.errors import invalid_field, unsupported
from services.common.request.grammar import choice_constraint
from services.common.request.limits import LIMITS
from services.common.request.sampling import RANGES, FinishReason, SamplingParams, SpeculationParams, StopParams
from services.common.request.validation import check_count
from services.gateway.grpc.questions import text_prompt
from services.gateway.intake.query import Prompt, Query, TokenPrompt
from services.gateway.streams.events import Delta, Final
from services.gateway.targets.messages import PositionLogprobs

UNSUPPORTED_FIELDS = (
    "kv_transfer_params",
    "mm_inputs",
    "kv_transfer_params_json",
    "data_parallel_rank",
    "media_refs",
)
FORMS = {"json_schema": Form.JSON, "json_object": Form.JSON, "regex": Form.REGEX, "grammar": Form.GRAMMAR}
ANY_OBJECT = '{"type": "object"}'
FINISH = {
    FinishReason.STOP_TOKEN: "stop",
    FinishReason.STOP_STRING: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.CONTEXT: "length",
}


def query(request: Any, default_max_tokens: int) -> Query:
    """One call of Generate.

    Raises:
        PacelineError: a field is too large, missing, or asks for what is not offered.
    """
    params = request.sampling_params
    _check_offered(request, params)
    return Query(
        model="",
        prompt=_prompt(request),
        sampling=_sampling(params),
        seed_given=params.HasField("seed"),
        stopping=StopParams(
            max_tokens=params.max_tokens
            if params.HasField("max_tokens")
            else max(default_max_tokens, params.min_tokens),
            min_tokens=params.min_tokens,
            stop=tuple(params.stop),
            stop_token_ids=tuple(params.stop_token_ids),
            ignore_eos=params.ignore_eos,
        ),
        speculation=SpeculationParams(),
        logprobs=params.logprobs if params.HasField("logprobs") else None,
        priority=0,
        timeout_s=None,
        key="",
        migration=True,
        constraint=_constraint(params),
        # A gateway of this contract may let the model think before its grammar begins.
        thinks=not params.grammar_from_first_token,
    )


class Encoder:
    """Writes one answer: chunks when the client streams, and what it has gathered at the end."""

    def __init__(self, pb2: Any) -> None:
        """Starts with no output."""
        self._pb2 = pb2
        self._stream = False
        self._stops: frozenset[int] = frozenset()
        self._token_ids: list[int] = []
        self._logprobs: list[PositionLogprobs] = []

    def begin(self, request: Any) -> None:
        """Notes what the request asks of its answer."""
        self._stream = request.stream
        self._stops = frozenset(request.sampling_params.stop_token_ids)

    def messages(self, request_id: str, event: Delta | Final) -> Iterable[Any]:
        """The messages of an event; a delta whose text alone became final has none."""
        if isinstance(event, Final):
            return (self._pb2.GenerateResponse(complete=self._complete(event)),)
        self._token_ids += event.token_ids
        self._logprobs += event.logprobs
        if not (self._stream and event.token_ids):
            return ()
        chunk = self._pb2.GenerateStreamChunk(
            token_ids=event.token_ids,
            completion_tokens=len(self._token_ids),
            output_logprobs=self._output_logprobs(event.logprobs),
        )
        return (self._pb2.GenerateResponse(chunk=chunk),)

    def _complete(self, event: Final) -> Any:
        usage, speculation = event.totals.usage, event.totals.speculation
        complete = self._pb2.GenerateComplete(
            output_ids=self._token_ids,
            finish_reason=FINISH.get(event.reason, "abort"),
            prompt_tokens=event.prompt_tokens,
            completion_tokens=event.completion_tokens,
            cached_tokens=usage.cached_tokens,
            output_logprobs=self._output_logprobs(self._logprobs),
            spec_accepted_tokens=speculation.accepted,
            spec_draft_tokens=speculation.drafted,
        )
        if event.reason is FinishReason.STOP_STRING:
            complete.matched_stop_str = event.matched
        elif event.reason is FinishReason.STOP_TOKEN and event.last_token in self._stops:
            complete.matched_token_id = event.last_token
        return complete

    def _output_logprobs(self, positions: Iterable[PositionLogprobs]) -> Any:
        listed = list(positions)
        if not listed:
            return None
        return self._pb2.OutputLogProbs(
            token_logprobs=[one.chosen[1] for one in listed],
            token_ids=[one.chosen[0] for one in listed],
            top_logprobs=[
                self._pb2.TopLogProbs(values=[value for _, value in one.top], token_ids=[token for token, _ in one.top])
                for one in listed
            ],
        )


def _check_offered(request: Any, params: Any) -> None:
    for name in UNSUPPORTED_FIELDS:
        if request.HasField(name):
            raise unsupported(name, "is not offered")
    if request.extra_mm_inputs:
        raise unsupported("extra_mm_inputs", "is not offered")
    if params.n > 1:
        raise unsupported("sampling_params.n", "more than one answer a request is not offered")
    for name in ("prompt_logprobs", "truncate_prompt_tokens"):
        if params.HasField(name):
            raise unsupported(f"sampling_params.{name}", "is not offered")
    check_count("sampling_params.stop", len(params.stop), LIMITS.stop_strings)
    check_count("sampling_params.stop_token_ids", len(params.stop_token_ids), LIMITS.stop_token_ids)
    check_count("sampling_params.logit_bias", len(params.logit_bias), LIMITS.logit_bias)


def _constraint(params: Any) -> Constraint | None:
    """What the output must be like; its fields have the names of this contract."""
    form = params.WhichOneof("constraint")
    if form is None or (form == "json_object" and not params.json_object):
        return None
    at = f"sampling_params.{form}"
    if form == "choice":
        return choice_constraint([*params.choice.choices], at)
    if form not in FORMS:
        raise unsupported(at, "is not offered")
    return Constraint(FORMS[form], ANY_OBJECT if form == "json_object" else getattr(params, form), at)


def _prompt(request: Any) -> Prompt:
    form = request.WhichOneof("input")
    if form == "text":
        return text_prompt(request.text)
    if form == "tokenized":
        check_count("tokenized.input_ids", len(request.tokenized.input_ids), LIMITS.prompt_ids)
        return TokenPrompt(tuple(request.tokenized.input_ids))
    raise invalid_field("input", "one of tokenized and text is needed")


def _sampling(params: Any) -> SamplingParams:
    """In this contract zero is the default of every number; an absent temperature is 1, as in vLLM."""
    offered = (name for name in RANGES if name in params.DESCRIPTOR.fields_by_name)
    numbers: dict[str, Any] = {name: value for name in offered if (value := getattr(params, name))}
    numbers["seed"] = params.seed % 2**64
    if not params.HasField("temperature"):
        numbers["temperature"] = 1.0
    return SamplingParams(**numbers, logit_bias=tuple(sorted(params.logit_bias.items())))
