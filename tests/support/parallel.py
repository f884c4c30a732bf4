"""A pytest plugin: which tests stay together in one process when pytest-xdist runs several, and which begin first.

Tests of one file share its fixtures. All tests that start a Ray stay together, for two of them may choose the same
port. The fault tests that share a fleet stay together. Both take longest and begin first, then what takes more than
some seconds. There are more processes than cores: of the seconds of fault tests and of those that start a Ray half are
waits.
"""

from typing import cast

import pytest

RAY, FLEET = "tests/integration/deploy/", "tests/faults/"
"""The names of both groups."""
BEGIN_EARLY = (
    RAY,
    "tests/kernels/test_interpreted.py",
    "tests/kernels/test_compiled.py",
    "tests/faults/",
    "tests/lossless/",
    "tests/integration/",
)


def company(path: str, of_the_fleet: bool) -> str:
    """The tests that a test stays with, by the path of its file, and by whether its file uses the common fleet."""
    return RAY if path.startswith(RAY) else FLEET if of_the_fleet else path


def rank(path: str) -> int:
    """When a file that does not use the common fleet begins: lower ones are first."""
    return next((place for place, folder in enumerate(BEGIN_EARLY) if path.startswith(folder)), len(BEGIN_EARLY))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not hasattr(config, "workerinput"):
        return
    paths = {item: item.path.relative_to(config.rootpath).as_posix() for item in items}
    fleets = {path for item, path in paths.items() if path.startswith(FLEET) and "fleet" in _fixtures(item)}
    for item, path in paths.items():
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(company(path, path in fleets)))
    items.sort(key=lambda item: (paths[item] not in fleets, rank(paths[item])))


def _fixtures(item: pytest.Item) -> list[str]:
    return cast("list[str]", getattr(item, "fixturenames", []))
