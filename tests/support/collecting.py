"""A pytest plugin: collects without looking for garbage, then or later.

Half of what collection takes is the collector's, which finds that nothing can go: items and modules live to the end.
What is marked as whole is left out without --full: its kind has a sample beside it, or another layer holds it too.
"""

import gc
import os
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Also where it fails, and in the process that leaves collecting to those of pytest-xdist."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """Names the marker of tests that only whole runs hold."""
    config.addinivalue_line("markers", "whole: takes long; runs with --full or N only")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what takes long."""
    if config.getoption("full") or "N" in os.environ:
        return
    left_out = [item for item in items if item.get_closest_marker("whole")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("whole")]
