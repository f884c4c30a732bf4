"""A pytest plugin: which tests stay together in one process when pytest-xdist runs several, and which begin first.

Tests of one file share its fixtures. All tests that start a Ray stay together, for two of them may choose the same
port. The fault tests stay together, for they share a fleet. Both folders take longest and begin first.
"""

import pytest

TOGETHER = ("tests/faults/", "tests/integration/deploy/")
BEGIN_EARLY = (*TOGETHER, "tests/integration/")


def company(path: str) -> str:
    """The tests that a test stays with, by the path of its file."""
    return next((folder for folder in TOGETHER if path.startswith(folder)), path)


def rank(path: str) -> int:
    """When a file begins: lower ones are first."""
    return next((place for place, folder in enumerate(BEGIN_EARLY) if path.startswith(folder)), len(BEGIN_EARLY))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not hasattr(config, "workerinput"):
        return
    paths = {item: item.path.relative_to(config.rootpath).as_posix() for item in items}
    for item, path in paths.items():
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(company(path)))
    items.sort(key=lambda item: rank(paths[item]))
