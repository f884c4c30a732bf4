"""A pytest plugin: collects without looking for garbage, and never looks through what was collected again.

Half of what collection takes is the collector's, which finds that nothing can go: items and modules live to the end.
"""

import gc
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Also where it fails, and in the process that leaves collecting to those of pytest-xdist."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
