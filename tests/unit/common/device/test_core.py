"""A thread stays on the core that it is given, and only that thread."""

import os
import threading

from services.common.device.threads import stay_on_core


def _affinity_after(core: int) -> set[int]:
    found: list[set[int]] = []

    def work() -> None:
        stay_on_core(core)
        found.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found[0]


def test_a_thread_stays_on_its_core() -> None:
    before = os.sched_getaffinity(0)
    assert _affinity_after(max(before)) == {max(before)}
    assert os.sched_getaffinity(0) == before


def test_no_core_and_a_core_of_others_change_nothing() -> None:
    before = os.sched_getaffinity(0)
    assert _affinity_after(-1) == before
    assert _affinity_after(max(before) + 1000) == before
