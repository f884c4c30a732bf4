"""What tenants have over all gateways."""

from services.target.sessions.tally import Bounds, Tally, Used


def test_a_bound_holds_over_sessions_and_frees_with_them() -> None:
    tally, most = Tally(), Bounds(requests=3)
    granted = [tally.claim(session, "t", 0, most).granted for session in (1, 2, 1, 2, 3)]
    assert granted == [True, True, True, False, False]
    assert tally.claim(3, "other", 0, most).granted
    assert tally.note(1, "t", Used(1)).requests == 2
    assert tally.claim(3, "t", 0, most).granted
    assert not tally.claim(3, "t", 0, most).granted
    tally.leave(3)
    assert tally.claim(2, "t", 0, most).requests == 3


def test_tokens_are_bounded_and_a_request_that_exceeds_alone_runs_alone() -> None:
    tally, most = Tally(), Bounds(tokens=100)
    assert tally.claim(1, "t", 500, most).granted
    assert not tally.claim(2, "t", 1, most).granted
    tally.note(1, "t", Used(0, 60))
    assert tally.claim(2, "t", 40, most).tokens == 100
    assert not tally.claim(2, "t", 1, most).granted


def test_what_is_over_leaves_nothing() -> None:
    tally = Tally()
    for session in range(50):
        tally.claim(session, f"t{session % 7}", 5, Bounds(requests=3))
    for session in range(0, 50, 2):
        tally.note(session, f"t{session % 7}", Used())
    for session in range(50):
        tally.leave(session)
    assert len(tally) == 0
