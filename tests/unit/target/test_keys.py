"""Idempotency keys: held while their request runs and a while after."""

import pytest

from services.common.errors import Code, PacelineError, Reason
from services.target.keys import KeyStore
from services.target.load import AdmissionRate


def test_a_key_is_held_while_running_and_sixty_seconds_after() -> None:
    """Then the same key may start a new request."""
    keys = KeyStore()
    keys.claim("tenant", "key", 0.0)
    for now, ended in ((1000.0, False), (1059.9, True)):
        if ended:
            keys.release("tenant", "key", 1000.0)
        with pytest.raises(PacelineError) as caught:
            keys.claim("tenant", "key", now)
        assert (caught.value.code, caught.value.reason) == (Code.ALREADY_EXISTS, Reason.DUPLICATE)
    keys.claim("tenant", "key", 1060.0)


def test_tenants_do_not_share_keys_and_no_key_is_no_key() -> None:
    """Neither blocks the other."""
    keys = KeyStore()
    for tenant, key in (("a", "k"), ("b", "k"), ("a", ""), ("a", "")):
        keys.claim(tenant, key, 0.0)
    keys.release("a", "", 0.0)
    assert len(keys) == 2


def test_the_store_is_bounded_and_forgets() -> None:
    """A full store refuses; ended keys make room, and releasing twice changes nothing."""
    keys = KeyStore(keep_s=10.0, capacity=2)
    keys.claim("t", "1", 0.0)
    keys.claim("t", "2", 0.0)
    with pytest.raises(PacelineError) as caught:
        keys.claim("t", "3", 0.0)
    assert caught.value.reason is Reason.OVERLOADED and caught.value.retry_after_s == 10.0
    keys.release("t", "1", 1.0)
    keys.release("t", "1", 9.0)
    keys.claim("t", "3", 11.0)
    assert len(keys) == 2


def test_a_tenant_that_fills_its_share_leaves_room_for_others() -> None:
    """It is refused as over its own limit; keys that end or are forgotten make room again."""
    keys = KeyStore(keep_s=10.0, capacity=100, tenant_capacity=2)
    keys.claim("greedy", "1", 0.0)
    keys.claim("greedy", "2", 0.0)
    with pytest.raises(PacelineError) as caught:
        keys.claim("greedy", "3", 0.0)
    assert (caught.value.code, caught.value.reason) == (Code.RESOURCE_EXHAUSTED, Reason.TENANT_LIMIT)
    assert caught.value.retry_after_s == 10.0
    keys.claim("other", "1", 0.0)
    keys.forget("greedy", "1")
    keys.claim("greedy", "3", 0.0)
    keys.release("greedy", "2", 1.0)
    keys.claim("greedy", "4", 11.0)
    assert len(keys) == 3


def test_callers_without_a_name_may_hold_every_key() -> None:
    """Without tenants there is nobody else to leave room for."""
    keys = KeyStore(capacity=3, tenant_capacity=1)
    for key in "123":
        keys.claim("", key, 0.0)
    with pytest.raises(PacelineError) as caught:
        keys.claim("", "4", 0.0)
    assert caught.value.reason is Reason.OVERLOADED


def test_retry_after_follows_the_queue_within_bounds() -> None:
    """A queue that moves once a second and holds 20 asks to come back in about ten."""
    rate = AdmissionRate()
    assert rate.retry_after_s(20) == 0.5
    for second in range(200):
        rate.admitted(float(second))
    assert 9.0 < rate.retry_after_s(20) <= 10.0 and rate.retry_after_s(1000) == 30.0


def test_a_request_that_left_without_an_end_frees_its_key_at_once() -> None:
    """The gateway may bring it back here; a key that is ending stays held."""
    keys = KeyStore()
    keys.claim("t", "moved", 0.0)
    keys.forget("t", "moved")
    keys.claim("t", "moved", 0.0)
    keys.release("t", "moved", 1.0)
    keys.forget("t", "moved")
    with pytest.raises(PacelineError):
        keys.claim("t", "moved", 2.0)
