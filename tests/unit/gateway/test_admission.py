"""Admission counts requests and queued prompt tokens, in all and by tenant."""

import random

import pytest

from services.common.errors import Code, PacelineError, Reason
from services.gateway.admission import Admission, Bound, Tenant, Ticket, estimated_tokens


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_requests_are_bounded_and_told_when_to_retry() -> None:
    admission = Admission(Bound(2, 1000), Clock())
    tickets = [admission.enter(Tenant(), 1) for _ in range(2)]
    with pytest.raises(PacelineError) as refused:
        admission.enter(Tenant(), 1)
    assert refused.value.code is Code.RESOURCE_EXHAUSTED
    assert refused.value.reason is Reason.OVERLOADED
    assert refused.value.retry_after_s is not None
    tickets[0].close()
    admission.enter(Tenant(), 1)


def test_queued_tokens_are_bounded_until_the_first_token() -> None:
    admission = Admission(Bound(100, 1000), Clock())
    first = admission.enter(Tenant(), 900)
    with pytest.raises(PacelineError):
        admission.enter(Tenant(), 200)
    first.settle(700)
    second = admission.enter(Tenant(), 200)
    first.started()
    assert admission.queued_tokens == 200
    second.close()
    assert admission.queued_tokens == 0


def test_a_prompt_larger_than_the_bound_enters_alone() -> None:
    admission = Admission(Bound(100, 10), Clock())
    admission.enter(Tenant(), 50)
    with pytest.raises(PacelineError):
        admission.enter(Tenant(), 1)


def test_a_tenants_limit_stops_that_tenant_only() -> None:
    admission = Admission(Bound(100, 1000), Clock())
    small, other = Tenant("small", bound=Bound(1, 1000)), Tenant("other", bound=Bound(5, 1000))
    admission.enter(small, 1)
    with pytest.raises(PacelineError) as refused:
        admission.enter(small, 1)
    assert refused.value.reason is Reason.TENANT_LIMIT
    admission.enter(other, 1)


def test_the_time_to_retry_follows_how_fast_requests_leave() -> None:
    clock = Clock()
    admission = Admission(Bound(1, 1000), clock)
    times = []
    for stay in (20.0,) * 40:
        ticket = admission.enter(Tenant(), 1)
        with pytest.raises(PacelineError) as refused:
            admission.enter(Tenant(), 1)
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
                tickets.append(admission.enter(random_numbers.choice(tenants), random_numbers.randint(1, 500)))
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
