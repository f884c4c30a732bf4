"""Session frames to and from plain values: the only place where a target's protobuf is read or written."""

from collections.abc import Iterable, Sequence

from google.protobuf import duration_pb2

from services.common.pb.paceline.v1 import target_pb2, types_pb2
from services.common.request.constraint import Rule, Thought
from services.common.request.error_convert import from_pb
from services.common.request.errors import Code, PacelineError, Reason
from services.common.request.limits import PROTOCOL_VERSION
from services.common.request.sampling import FinishReason
from services.common.request.sampling_convert import finish_from_pb, sampling_to_pb, speculation_to_pb, stopping_to_pb
from services.gateway.routing.routed_request import RoutedRequest
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
    Use,
)


def hello(gateway_id: str, secret: str, quiet_s: float) -> target_pb2.SessionRequest:
    """The first frame; `quiet_s` is the longest silence that is wanted of a target of which nothing is expected."""
    quiet = duration_pb2.Duration()
    quiet.FromMilliseconds(int(quiet_s * 1e3))
    greeting = target_pb2.Hello(
        protocol_version=PROTOCOL_VERSION, gateway_id=gateway_id, secret=secret, quiet=quiet, settles=True
    )
    return target_pb2.SessionRequest(hello=greeting)


def start(name: str, job: RoutedRequest, committed: list[int], timeout_s: float) -> target_pb2.SessionRequest:
    """Starts `job` under a name of this session, after `committed` tokens of output."""
    timeout = duration_pb2.Duration()
    timeout.FromNanoseconds(max(int(timeout_s * 1e9), 0))
    return target_pb2.SessionRequest(
        start=target_pb2.Start(
            request_id=name,
            token_ids=[*job.prompt, *committed],
            prompt_length=len(job.prompt),
            sampling=sampling_to_pb(job.sampling),
            stopping=stopping_to_pb(job.stopping),
            speculation=speculation_to_pb(job.speculation),
            logprobs=job.logprobs,
            priority=job.priority,
            timeout=timeout,
            tenant_salt=job.tenant.salt,
            tenant=job.tenant.name,
            idempotency_key=job.key,
            traceparent=job.traceparent,
            owner=job.request_id,
            resumed=bool(committed),
            rule=None if job.rule is None else _rule(job.rule),
            prompt_logprobs=None if committed else job.prompt_logprobs,
        )
    )


def ask(name: str, job: RoutedRequest) -> target_pb2.SessionRequest:
    """Asks whether another generation holds the key of `job`."""
    question = target_pb2.Ask(request_id=name, tenant=job.tenant.name, idempotency_key=job.key, owner=job.request_id)
    return target_pb2.SessionRequest(ask=question)


def use(stated: Use) -> target_pb2.SessionRequest:
    """What a tenant has at this gateway."""
    return target_pb2.SessionRequest(
        use=target_pb2.Use(
            number=stated.number,
            heard=stated.heard,
            tenant=stated.tenant,
            requests=stated.requests,
            tokens=stated.tokens,
            claims=stated.claims > 0,
            claimed_requests=stated.claims,
            claimed_tokens=stated.claimed_tokens,
            most_requests=stated.most_requests,
            most_tokens=stated.most_tokens,
        )
    )


def held(message: target_pb2.RequestUpdate) -> PacelineError | None:
    """The error of a key that another generation holds; None where none does."""
    return from_pb(message.end.error) if message.end.HasField("error") else None


def standing(message: target_pb2.Standing) -> Standing:
    """What a tenant has over all gateways."""
    return Standing(message.number, message.granted, message.requests, message.tokens, message.gateways)


def cancel(name: str, tokens_kept: int, reason: str) -> target_pb2.SessionRequest:
    """Cancels a request of this session."""
    return target_pb2.SessionRequest(cancel=target_pb2.Cancel(request_id=name, tokens_kept=tokens_kept, reason=reason))


def cancels(several: Sequence[target_pb2.SessionRequest]) -> target_pb2.SessionRequest:
    """Several cancellations, at least one, as one frame."""
    first = several[0]
    first.cancel.others.extend(one.cancel for one in several[1:])
    return first


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


def _rule(rule: Rule) -> target_pb2.Rule:
    return target_pb2.Rule(
        grammar=rule.grammar,
        thought=None if rule.thought is None else _thought(rule.thought),
        allowed=rule.words.allowed,
        banned=[types_pb2.TokenIds(ids=word) for word in rule.words.banned],
    )


def _thought(thought: Thought) -> target_pb2.Thought:
    return target_pb2.Thought(
        opening=thought.opening,
        closing=thought.closing,
        begun=thought.begun,
        budget=thought.budget,
        ending=thought.ending,
    )


def _position(message: types_pb2.PositionLogprobs) -> PositionLogprobs:
    chosen = (message.chosen.token_id, message.chosen.logprob)
    return PositionLogprobs(chosen, tuple((one.token_id, one.logprob) for one in message.top))


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
