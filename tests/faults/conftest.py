"""One fleet for all fault tests that put it back as they found it."""

from __future__ import annotations

import os
import random
import re
from collections.abc import AsyncIterator, Iterable

import pytest
import pytest_asyncio

from tests.faults.fleet import Fleet, running_fleet


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def fleet() -> AsyncIterator[Fleet]:
    """Two pairs and a gateway; rounds are slowed down so that faults meet live streams.

    In float64: on a CPU numbers of float32 vary with the rows beside them, and of 50,000 tokens one may be a near tie.
    """
    async with running_fleet(2, ("--slots", "16", "--dtype", "float64")) as made:
        await made.warm_up()
        yield made


@pytest.fixture
def rng(seed: int) -> random.Random:
    """Random times and victims, the same in every run."""
    return random.Random(seed)


FAULTS = pytest.StashKey[list[str]]()


def faults(names: Iterable[str]) -> list[str]:
    """The faults that tests of these names repeat, such as F4, in order."""
    numbers = {int(found[1]) for name in names if (found := re.match(r"test_f(\d+)_", name))}
    return [f"F{number}" for number in sorted(numbers)]


def pytest_configure(config: pytest.Config) -> None:
    """Names the marker of tests that nothing may disturb."""
    config.addinivalue_line("markers", "alone: judged so finely that nothing else may run beside it")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Whole sizes take long; samples have time on a busy machine."""
    whole = config.getoption("full") or "N" in os.environ
    for item in items:
        if "tests/faults/" in item.path.as_posix():
            item.add_marker(pytest.mark.timeout(6000 if whole else 600))
    config.stash[FAULTS] = faults(item.name for item in items)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    """Shows what tests measured, for pytest shows what failed ones printed; without a test, names the faults."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        there = config.stash[FAULTS]
        terminalreporter.write_line(f"no test has such a name; FAULT may be one of: {' '.join(there)}")
    for report in terminalreporter.stats.get("passed", []):
        if "tests/faults/" in report.nodeid:
            for line in report.capstdout.splitlines():
                terminalreporter.write_line(line)


class Size:
    """How many trials: ``N`` from the environment, else few by default and more with ``--full``."""

    def __init__(self, whole: bool) -> None:
        self._whole = whole
        self._asked = int(os.environ.get("N", "0"))

    def __call__(self, sample: int, whole: int) -> int:
        return self._asked or (whole if self._whole else sample)

    def at_once(self, sample: int, whole: int) -> int:
        """How many requests run at once: `N` counts trials alone."""
        return whole if self._whole or self._asked else sample


@pytest.fixture
def size(full: bool) -> Size:
    """Number of trials."""
    return Size(full)
