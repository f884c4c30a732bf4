"""A pytest plugin: which tests stay together in one process when pytest-xdist runs several, and which begin first.

Tests of one file share its fixtures. All tests that start a Ray stay together, for two of them may choose the same
port. The fault tests that share a fleet stay together, and so do those that ask transformers, which takes seconds to
import. Both take longest and begin first, then what takes more than
some seconds. There are more processes than cores: of the seconds of fault tests and of those that start a Ray half are
waits.

Of a test that passes its processes tell one thing, that it passed: pytest-xdist would send five messages, with the
reports of set-up and teardown, which nobody reads unless durations are asked for.
"""

import re
from functools import partial
from typing import Any, cast

import pytest

RAY, FLEET, ORACLE = "tests/integration/deploy/", "tests/faults/", "transformers"
"""The names of the groups."""
ASKS_ORACLE = re.compile(
    r"^\s+from (?:transformers|compressed_tensors)|parity import|format_quality import", re.MULTILINE
)
"""In a test file, or of a module that it uses."""
RELEASES = ("exact_served", "installed", "ipv6", "live", "ray_cluster", "ray_pairs", "rolling_restart", "trace")
RAYS = (RAY, *(f"tests/deploy/full/test_{each}.py" for each in RELEASES))
"""What starts a Ray."""
BEGIN_EARLY: tuple[str | tuple[str, ...], ...] = (
    RAYS,
    "tests/kernels/test_interpreted.py",
    "tests/kernels/test_compiled.py",
    "tests/faults/",
    "tests/lossless/",
    "tests/integration/",
)


def company(path: str, of_the_fleet: bool, asks_oracle: bool = False) -> str:
    """The tests that a test stays with, by the path of its file, and by what its file uses."""
    if path.startswith(RAYS):
        return RAY
    return FLEET if of_the_fleet else ORACLE if asks_oracle else path


def rank(path: str) -> int:
    """When a file that does not use the common fleet begins: lower ones are first."""
    return next((place for place, folder in enumerate(BEGIN_EARLY) if path.startswith(folder)), len(BEGIN_EARLY))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not hasattr(config, "workerinput"):
        return
    paths = {item: item.path.relative_to(config.rootpath).as_posix() for item in items}
    fleets = {path for item, path in paths.items() if path.startswith(FLEET) and "fleet" in _fixtures(item)}
    oracles = {path for path in set(paths.values()) if ASKS_ORACLE.search((config.rootpath / path).read_text())}
    for item, path in paths.items():
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(company(path, path in fleets, path in oracles)))
    items.sort(key=lambda item: (paths[item] not in fleets, paths[item] not in oracles, rank(paths[item])))


def _fixtures(item: pytest.Item) -> list[str]:
    return cast("list[str]", getattr(item, "fixturenames", []))


def _said_of_nothing(report: object) -> bool:
    """A set-up or a teardown that passed."""
    return isinstance(report, pytest.TestReport) and report.when != "call" and report.outcome == "passed"


@pytest.hookimpl(tryfirst=True)
def pytest_report_to_serializable(config: pytest.Config, report: object) -> dict[str, Any] | None:
    """Makes nothing of what is not sent; None leaves a report to pytest."""
    return {} if _fewer(config) and _said_of_nothing(report) else None


def pytest_sessionstart(session: pytest.Session) -> None:
    """In a process of pytest-xdist: it tells groups, and sends less."""
    if not hasattr(session.config, "workerinput"):
        return
    for plugin in session.config.pluginmanager.get_plugins():
        if hasattr(plugin, "sendevent") and hasattr(plugin, "torun"):
            send = partial(_send, plugin.sendevent) if _fewer(session.config) else plugin.sendevent
            plugin.sendevent = partial(_send_grouped, send, session)


def _send_grouped(send: Any, session: pytest.Session, name: str, **told: Any) -> None:
    """Sends names of tests with their groups, by which pytest-xdist keeps them together.

    It writes them into an attribute that pytest 9.2 does not read any more, and then keeps nothing together.
    """
    if name == "collectionfinish" and session.config.getoption("loadgroup", default=False):
        told["ids"] = [grouped(item) for item in session.items]
    send(name, **told)


def grouped(item: pytest.Item) -> str:
    """The name of a test with that of its group."""
    name, mark = item.nodeid, item.get_closest_marker("xdist_group")
    return name if mark is None or name.endswith(f"@{mark.args[0]}") else f"{name}@{mark.args[0]}"


def _fewer(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput") and config.getoption("durations", None) is None


def _send(send: Any, name: str, **told: Any) -> None:
    """Sends what somebody reads."""
    if name in ("logstart", "logfinish") or (name == "testreport" and "outcome" not in told["data"]):
        return
    send(name, **told)
