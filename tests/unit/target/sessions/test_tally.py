"""What tenants have over all gateways."""

from services.target.sessions.tally import Bounds, Granted, Tally, Used


def test_a_bound_holds_over_sessions_and_frees_with_them() -> None:
    tally, most = Tally(), Bounds(requests=3)
    granted = [tally.claim(session, "t", Granted(1, 1, 0), most).granted for session in (1, 2, 1, 2, 3)]
    assert granted == [True, True, True, False, False]
    assert tally.claim(3, "other", Granted(1, 1, 0), most).granted
    assert tally.note(1, "t", Used(1)).requests == 2
    assert tally.claim(3, "t", Granted(1, 1, 0), most).granted
    assert not tally.claim(3, "t", Granted(1, 1, 0), most).granted
    tally.leave(3)
    assert tally.claim(2, "t", Granted(1, 1, 0), most).requests == 3


def test_tokens_are_bounded_and_a_request_that_exceeds_alone_runs_alone() -> None:
    tally, most = Tally(), Bounds(tokens=100)
    assert tally.claim(1, "t", Granted(1, 1, 500), most).granted
    assert not tally.claim(2, "t", Granted(1, 1, 1), most).granted
    tally.note(1, "t", Used(0, 60))
    assert tally.claim(2, "t", Granted(1, 1, 40), most).tokens == 100
    assert not tally.claim(2, "t", Granted(1, 1, 1), most).granted


def test_what_is_over_leaves_nothing() -> None:
    tally = Tally()
    for session in range(50):
        tally.claim(session, f"t{session % 7}", Granted(1, 1, 5), Bounds(requests=3))
    for session in range(0, 50, 2):
        tally.note(session, f"t{session % 7}", Used())
    for session in range(50):
        tally.leave(session)
    assert len(tally) == 0


def test_a_call_that_never_fits_leaves_nothing() -> None:
    tally = Tally()
    assert not tally.claim(1, "t", Granted(1, 4, 0), Bounds(requests=3)).granted
    assert len(tally) == 0


def test_what_was_granted_and_not_heard_of_counts_beside_a_statement() -> None:
    """A gateway states what it has while its claims are on their way: it knows of those up to the number it heard."""
    tally, most = Tally(), Bounds(requests=4)
    for number in (1, 2, 3):
        tally.claim(1, "t", Granted(number, 1, 10), most)
    assert tally.note(1, "t", Used(1, 10), heard=1).requests == 3
    assert tally.note(1, "t", Used(1, 10), heard=2).tokens == 20
    assert not tally.claim(2, "t", Granted(1, 3, 0), most).granted, "two run, and three are asked for at once"
    assert tally.claim(2, "t", Granted(2, 2, 0), most).granted
    assert tally.note(1, "t", Used(), heard=3).requests == 2
    assert tally.note(2, "t", Used()).requests == 0
    assert len(tally) == 0
