"""Refuses requests before they wait: those that can never run, and those that come when the queue is full.

`Scheduler` admits the others later, when it gives them a slot.
"""

from services.common.request.errors import context_limit as too_long
from services.common.request.errors import invalid_field, overloaded
from services.target.cache.blocks import BlockPool
from services.target.core.load import AdmissionRate
from services.target.core.request import RequestSpec
from services.target.scheduling.waiting import WaitingQueue


def lifetime_tokens(spec: RequestSpec, context_limit: int) -> int:
    """Most tokens a request can ever hold, prompt and output."""
    return min(spec.prompt_length + spec.stopping.max_tokens, context_limit)


def check_possible(spec: RequestSpec, context_limit: int, pool: BlockPool) -> None:
    """Raises INVALID_FIELD or CONTEXT_LIMIT when a request could not run on an idle server."""
    tokens = len(spec.token_ids)
    if not 1 <= spec.prompt_length <= tokens:
        raise invalid_field("prompt_length", f"must be in [1, {tokens}], the number of token ids")
    if spec.stopping.max_tokens <= tokens - spec.prompt_length:
        raise invalid_field("max_tokens", f"must be above {tokens - spec.prompt_length}, the tokens committed already")
    if tokens >= context_limit:
        raise too_long("token_ids", f"{tokens} tokens leave no room in a context of {context_limit}")
    needed = pool.blocks_for(lifetime_tokens(spec, context_limit))
    if needed > pool.total:
        raise too_long("max_tokens", f"the request needs {needed} blocks of {pool.block_size} tokens of {pool.total}")


def check_room(
    spec: RequestSpec, queue: WaitingQueue, rate: AdmissionRate, max_waiting: int, max_queued_tokens: int
) -> None:
    """Raises OVERLOADED when the queue is full, with the time after which to retry."""
    if queue.count >= max_waiting:
        raise overloaded(f"{queue.count} requests wait already", rate.retry_after_s(queue.count))
    # One prompt of each tenant may always wait. Otherwise a long prompt could never be served, nor a tenant beside one
    # with many prompts.
    if queue.waits(spec.tenant) and queue.tokens + len(spec.token_ids) > max_queued_tokens:
        raise overloaded(f"{queue.tokens} prompt tokens wait already", rate.retry_after_s(queue.count))
