"""Admission counts requests and queued prompt tokens, in all and by tenant."""

import random

import pytest

from services.common.request.errors import Code, PacelineError, Reason
from services.gateway.tenancy.admission import Admission, Bound, Tenant, Ticket, estimated_tokens


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def enter(admission: Admission, tenant: Tenant, tokens: int) -> Ticket:
    """Lets a request in and queues its prompt; one that is refused leaves at once."""
    ticket = admission.enter(tenant)
    try:
        ticket.queue(tokens)
    except PacelineError:
        ticket.close()
        raise
    return ticket


def test_requests_are_bounded_and_told_when_to_retry() -> None:
    admission = Admission(Bound(2, 1000), Clock())
    tickets = [enter(admission, Tenant(), 1) for _ in range(2)]
    with pytest.raises(PacelineError) as refused:
        enter(admission, Tenant(), 1)
    assert refused.value.code is Code.RESOURCE_EXHAUSTED
    assert refused.value.reason is Reason.OVERLOADED
    assert refused.value.retry_after_s is not None
    tickets[0].close()
    enter(admission, Tenant(), 1)


def test_queued_tokens_are_bounded_until_the_first_token() -> None:
    admission = Admission(Bound(100, 1000), Clock())
    first = enter(admission, Tenant(), 900)
    with pytest.raises(PacelineError):
        enter(admission, Tenant(), 200)
    first.settle(700)
    second = enter(admission, Tenant(), 200)
    first.started()
    assert admission.queued_tokens == 200
    second.close()
    assert admission.queued_tokens == 0


def test_a_prompt_larger_than_the_bound_enters_alone() -> None:
    admission = Admission(Bound(100, 10), Clock())
    enter(admission, Tenant(), 50)
    with pytest.raises(PacelineError):
        enter(admission, Tenant(), 1)


def test_a_tenants_limit_stops_that_tenant_only() -> None:
    admission = Admission(Bound(100, 1000), Clock())
    small, other = Tenant("small", bound=Bound(1, 1000)), Tenant("other", bound=Bound(5, 1000))
    enter(admission, small, 1)
    with pytest.raises(PacelineError) as refused:
        enter(admission, small, 1)
    assert refused.value.reason is Reason.TENANT_LIMIT
    enter(admission, other, 1)


def test_requests_are_counted_before_their_prompts_are_known() -> None:
    admission = Admission(Bound(100, 1000), Clock())
    tenant = Tenant("a", bound=Bound(2, 1000))
    tickets = [admission.enter(tenant) for _ in range(2)]
    with pytest.raises(PacelineError) as refused:
        admission.enter(tenant)
    assert refused.value.reason is Reason.TENANT_LIMIT
    tickets[0].close()
    admission.enter(tenant)


def test_a_tenant_whose_prompts_fill_the_gateway_leaves_room_for_others() -> None:
    admission = Admission(Bound(100, 1000), Clock())
    greedy, other = Tenant("greedy"), Tenant("other")
    enter(admission, greedy, 1000)
    with pytest.raises(PacelineError) as refused:
        enter(admission, greedy, 1)
    assert refused.value.reason is Reason.OVERLOADED
    enter(admission, other, 300)
    with pytest.raises(PacelineError):
        enter(admission, other, 201)


def test_each_tenant_has_an_equal_share_when_others_fill_the_gateway() -> None:
    """One prompt may be larger than the bound; others that begin several at once are not refused for it."""
    admission = Admission(Bound(100, 1000), Clock())
    enter(admission, Tenant("large"), 5000)
    for _ in range(5):
        enter(admission, Tenant("other"), 100)
    with pytest.raises(PacelineError) as refused:
        enter(admission, Tenant("other"), 1)
    assert refused.value.reason is Reason.OVERLOADED, "half of the bound"
    enter(admission, Tenant("third"), 300)
    with pytest.raises(PacelineError):
        enter(admission, Tenant("third"), 34)
    enter(admission, Tenant("third"), 33)
    with pytest.raises(PacelineError):
        enter(admission, Tenant("large"), 1)


def test_the_time_to_retry_follows_how_fast_requests_leave() -> None:
    clock = Clock()
    admission = Admission(Bound(1, 1000), clock)
    times = []
    for stay in (20.0,) * 40:
        ticket = enter(admission, Tenant(), 1)
        with pytest.raises(PacelineError) as refused:
            enter(admission, Tenant(), 1)
        times.append(refused.value.retry_after_s or 0.0)
        clock.now += stay
        ticket.close()
    assert times[0] < 2.0
    assert 15.0 < times[-1] <= 20.0


def test_counts_return_to_zero_whatever_the_order() -> None:
    random_numbers = random.Random(4)
    admission = Admission(Bound(50, 5000), Clock())
    tenants = [Tenant(name, bound=Bound(30, 4000)) for name in "abc"]
    tickets: list[Ticket] = []
    for _ in range(2000):
        action = random_numbers.random()
        if action < 0.5 or not tickets:
            try:
                tickets.append(enter(admission, random_numbers.choice(tenants), random_numbers.randint(1, 500)))
            except PacelineError:
                continue
        elif action < 0.7:
            random_numbers.choice(tickets).settle(random_numbers.randint(1, 500))
        elif action < 0.8:
            random_numbers.choice(tickets).started()
        else:
            ticket = tickets.pop(random_numbers.randrange(len(tickets)))
            ticket.close()
            ticket.close()
            ticket.settle(7)
        assert 0 <= admission.requests <= 50
        assert admission.queued_tokens >= 0
    for ticket in tickets:
        ticket.close()
    assert (admission.requests, admission.queued_tokens) == (0, 0)


def test_estimates_are_not_zero_for_text() -> None:
    assert estimated_tokens(0) == 0
    assert estimated_tokens(1) == 1
    assert estimated_tokens(300) == 100
