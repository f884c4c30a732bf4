"""A pytest plugin: collects without looking for garbage, and never looks through what was collected again.

Half of what collection takes is the collector's, which finds that nothing can go: items and modules live to the end.
"""

import gc

import pytest

gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()
