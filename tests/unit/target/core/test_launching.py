"""Whether a launch is worth waiting for, and who is told of its end."""

from services.target.core.launching import LAUNCH_S, Launching


def test_a_launch_lasts_from_its_begin_to_its_end_and_never_long() -> None:
    now = [5.0]
    launching = Launching(lambda: now[0])
    seen = [launching.lasts]
    for change in (launching.begin, launching.end, launching.begin):
        change()
        seen.append(launching.lasts)
    assert seen == [False, True, False, True]
    lasts = []
    for step in (0.9, 0.2):
        now[0] += step * LAUNCH_S
        lasts.append(launching.lasts)
    assert lasts == [True, False], "what takes longer is no launch but work on the CPU"


def test_each_that_waits_is_called_once_at_the_end() -> None:
    launching, called = Launching(lambda: 0.0), list[str]()
    assert not launching.when_over(lambda: called.append("late"))
    launching.begin()
    assert launching.when_over(lambda: called.append("a")) and launching.when_over(lambda: called.append("b"))
    launching.end()
    assert called == ["late", "a", "b"]
    launching.begin()
    launching.end()
    assert called == ["late", "a", "b"]
