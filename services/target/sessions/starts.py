"""What a gateway asks a target to start, checked and as plain values."""

from __future__ import annotations

from services.common.pb.paceline.v1 import target_pb2 as pb
from services.common.request.constraint import Rule, Thought, Words
from services.common.request.errors import invalid_field
from services.common.request.grammar import Grammar
from services.common.request.limits import LIMITS
from services.common.request.sampling_convert import (
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
from services.target.core.request import RequestSpec

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


def _allowed(message: pb.Start, latest: float) -> float:
    if not message.HasField("timeout"):
        return latest
    return min(max(message.timeout.seconds + message.timeout.nanos / 1e9, 0.0), latest)
