"""Frames that a gateway sends to a target, of plain values."""

from collections.abc import Sequence

from google.protobuf import duration_pb2

from services.common.pb.paceline.v1 import target_pb2, types_pb2
from services.common.request.constraint import Rule, Thought
from services.common.request.limits import PROTOCOL_VERSION
from services.common.request.sampling_convert import sampling_to_pb, speculation_to_pb, stopping_to_pb
from services.gateway.routing.routed_request import RoutedRequest
from services.gateway.targets.messages import Use


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


def ask(name: str, job: RoutedRequest, ended: bool = False) -> target_pb2.SessionRequest:
    """Asks whether another generation holds the key of `job`, or tells that `job` has `ended` on another target."""
    question = target_pb2.Ask(
        request_id=name, tenant=job.tenant.name, idempotency_key=job.key, owner=job.request_id, ended=ended
    )
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


def cancel(name: str, tokens_kept: int, reason: str) -> target_pb2.SessionRequest:
    """Cancels a request of this session."""
    return target_pb2.SessionRequest(cancel=target_pb2.Cancel(request_id=name, tokens_kept=tokens_kept, reason=reason))


def cancels(several: Sequence[target_pb2.SessionRequest]) -> target_pb2.SessionRequest:
    """Several cancellations, at least one, as one frame."""
    first = several[0]
    first.cancel.others.extend(one.cancel for one in several[1:])
    return first


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
