"""Idempotency keys: held while their request runs and a while after."""

import pytest

from services.common.request.errors import Code, PacelineError, Reason
from services.target.core.load import AdmissionRate
from services.target.engine.idempotency import Claim, KeyStore


def claim(key: str, owner: str = "first", tenant: str = "t", uid: int = 1, resumed: bool = False) -> Claim:
    return Claim(tenant, key, owner, uid, resumed)


def test_a_key_is_held_while_running_and_sixty_seconds_after() -> None:
    """Then the same key may start a new request."""
    keys = KeyStore()
    keys.claim(claim("key"), 0.0)
    for now, ended in ((1000.0, False), (1059.9, True)):
        if ended:
            keys.release(claim("key"), 1000.0)
        with pytest.raises(PacelineError) as caught:
            keys.claim(claim("key", "second"), now)
        assert (caught.value.code, caught.value.reason) == (Code.ALREADY_EXISTS, Reason.DUPLICATE)
    keys.claim(claim("key", "second"), 1060.0)


def test_a_key_that_is_noted_is_kept_as_long_as_one_that_ended_here() -> None:
    """Its own request may still come, moved or asked for again; another's may not."""
    keys = KeyStore()
    keys.note(claim("key"), 0.0)
    for now in (0.0, 59.9):
        with pytest.raises(PacelineError) as caught:
            keys.claim(claim("key", "second"), now)
        assert caught.value.reason is Reason.DUPLICATE
        keys.check(claim("key"), now)
        keys.check(claim("key", tenant="other"), now)
    keys.claim(claim("key", "second"), 60.0)


def test_a_noted_key_takes_no_room_of_those_that_run_here() -> None:
    """Of too many the oldest are forgotten; one that is noted again is kept anew."""
    keys = KeyStore(capacity=2, tenant_capacity=2)
    for now, key in enumerate(("0", "1", "0", "2")):
        keys.note(claim(key), float(now))
    keys.check(claim("1", "second"), 3.0)
    for key in ("0", "2"):
        with pytest.raises(PacelineError):
            keys.check(claim(key, "second"), 3.0)
    for key in ("3", "4"):
        keys.claim(claim(key), 3.0)
    assert len(keys) == 2


def test_tenants_do_not_share_keys_and_no_key_is_no_key() -> None:
    """Neither blocks the other."""
    keys = KeyStore()
    for owner, (tenant, key) in enumerate((("a", "k"), ("b", "k"), ("a", ""), ("a", ""))):
        keys.claim(claim(key, str(owner), tenant), 0.0)
    keys.release(claim("", tenant="a"), 0.0)
    assert len(keys) == 2


def test_the_store_is_bounded_and_forgets() -> None:
    """A full store refuses; ended keys make room, and releasing twice changes nothing."""
    keys = KeyStore(keep_s=10.0, capacity=2)
    keys.claim(claim("1"), 0.0)
    keys.claim(claim("2"), 0.0)
    with pytest.raises(PacelineError) as caught:
        keys.claim(claim("3"), 0.0)
    assert caught.value.reason is Reason.OVERLOADED and caught.value.retry_after_s == 10.0
    keys.release(claim("1"), 1.0)
    keys.release(claim("1"), 9.0)
    keys.claim(claim("3"), 11.0)
    assert len(keys) == 2


def test_a_tenant_that_fills_its_share_leaves_room_for_others() -> None:
    """It is refused as over its own limit; keys that end or are forgotten make room again."""
    keys = KeyStore(keep_s=10.0, capacity=100, tenant_capacity=2)
    keys.claim(claim("1", tenant="greedy"), 0.0)
    keys.claim(claim("2", tenant="greedy"), 0.0)
    with pytest.raises(PacelineError) as caught:
        keys.claim(claim("3", tenant="greedy"), 0.0)
    assert (caught.value.code, caught.value.reason) == (Code.RESOURCE_EXHAUSTED, Reason.TENANT_LIMIT)
    assert caught.value.retry_after_s == 10.0
    keys.claim(claim("1", tenant="other"), 0.0)
    keys.forget(claim("1", tenant="greedy"))
    keys.claim(claim("3", tenant="greedy"), 0.0)
    keys.release(claim("2", tenant="greedy"), 1.0)
    keys.claim(claim("4", tenant="greedy"), 11.0)
    assert len(keys) == 3


def test_callers_without_a_name_may_hold_every_key() -> None:
    """Without tenants there is nobody else to leave room for."""
    keys = KeyStore(capacity=3, tenant_capacity=1)
    for key in "123":
        keys.claim(claim(key, tenant=""), 0.0)
    with pytest.raises(PacelineError) as caught:
        keys.claim(claim("4", tenant=""), 0.0)
    assert caught.value.reason is Reason.OVERLOADED


def test_a_generation_with_output_is_never_refused() -> None:
    """Neither by a key that another one holds nor by a full store."""
    keys = KeyStore(capacity=1)
    keys.claim(claim("k", "duplicate", uid=1), 0.0)
    keys.claim(claim("k", "moved", uid=2, resumed=True), 0.0)
    keys.claim(claim("other", "moved too", uid=3, resumed=True), 0.0)
    assert len(keys) == 1


def test_a_key_that_was_taken_over_follows_its_new_request() -> None:
    """The end of the request before frees nothing, and the time of an ended one does not run on."""
    keys = KeyStore(keep_s=10.0)
    keys.claim(claim("k", "first", uid=1), 0.0)
    keys.release(claim("k", "first", uid=1), 1.0)
    keys.claim(claim("k", "first", uid=2, resumed=True), 2.0)
    keys.release(claim("k", "first", uid=1), 3.0)
    keys.forget(claim("k", "first", uid=1))
    for now in (12.0, 1000.0):
        with pytest.raises(PacelineError):
            keys.check(claim("k", "second"), now)
    keys.release(claim("k", "first", uid=2), 1000.0)
    keys.check(claim("k", "second"), 1010.0)


def test_a_generation_that_returns_without_output_is_no_duplicate_of_itself() -> None:
    """Its target may not have noticed yet that it left."""
    keys = KeyStore()
    keys.claim(claim("k", "first", uid=1), 0.0)
    keys.claim(claim("k", "first", uid=2), 0.1)
    with pytest.raises(PacelineError):
        keys.claim(claim("k", "second", uid=3), 0.2)


def test_two_requests_that_name_no_owner_are_strangers() -> None:
    """A gateway of the version before names none."""
    keys = KeyStore()
    keys.claim(claim("k", "", uid=1), 0.0)
    with pytest.raises(PacelineError):
        keys.claim(claim("k", "", uid=2), 0.1)


def test_retry_after_follows_the_queue_within_bounds() -> None:
    """A queue that moves once a second and holds 20 asks to come back in about ten."""
    rate = AdmissionRate()
    assert rate.retry_after_s(20) == 0.5
    for second in range(200):
        rate.admitted(float(second))
    assert 9.0 < rate.retry_after_s(20) <= 10.0 and rate.retry_after_s(1000) == 30.0


def test_a_request_whose_gateway_is_gone_frees_its_key_at_once() -> None:
    """Its client may ask again through another one; a key that is ending stays held."""
    keys = KeyStore()
    keys.claim(claim("k"), 0.0)
    keys.forget(claim("k"))
    keys.claim(claim("k", "second"), 0.0)
    keys.release(claim("k", "second"), 1.0)
    keys.forget(claim("k", "second"))
    with pytest.raises(PacelineError):
        keys.claim(claim("k", "third"), 2.0)
