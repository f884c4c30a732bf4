"""A pytest plugin: some seconds before a test's time is up, it shows on stderr where each thread stands.

pytest-timeout's signal waits until Python runs again, so a test that is stuck in C needs a watch of its own. pytest's
(`faulthandler_timeout`) starts and ends a thread for each test: milliseconds on a busy machine, thousands of times.
This one begins anew at most every RENEW_S.
"""

import faulthandler
import time
from collections.abc import Generator

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

BEFORE_S, RENEW_S = 20.0, 10.0
BEGUN = pytest.StashKey[float]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A watch that runs was begun RENEW_S before this test, at most."""
    config, now = item.config, time.monotonic()
    limit_s = config.getoption("timeout", None) or float(config.getini("timeout") or 0.0)
    if limit_s > BEFORE_S and now - config.stash.get(BEGUN, float("-inf")) >= RENEW_S:
        config.stash[BEGUN] = now
        faulthandler.dump_traceback_later(limit_s - BEFORE_S, file=config.stash[fault_handler_stderr_fd_key])
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure() -> None:
    """Before pytest closes where it would write."""
    faulthandler.cancel_dump_traceback_later()
