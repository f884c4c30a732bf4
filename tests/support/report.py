"""A pytest plugin: counts tests and what they register, and ends the output with one line of JSON.

A skip without a reason is red; with CI=true every skip is. Seeds are fixed, so that two runs do the same. Where
pytest-xdist runs several processes, each hands its counts to the one that writes the line.
"""

import json
import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings

DEFAULT_SEED = 20_260_101
COUNTS = pytest.StashKey[Counter[str]]()
SKIPS = pytest.StashKey[list[str]]()
SKIPPED_MODULES = pytest.StashKey[dict[str, str]]()
OUTCOMES = pytest.StashKey[Counter[str]]()

settings.register_profile("paceline", derandomize=True, deadline=None, database=None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run whole sweeps where the default suite runs samples")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("paceline")
    config.stash[COUNTS] = Counter()
    config.stash[SKIPS] = []
    config.stash[SKIPPED_MODULES] = {}
    config.stash[OUTCOMES] = Counter()


def current_seed() -> int:
    """The seed of this run; TEST_SEED replaces the default."""
    return int(os.environ.get("TEST_SEED", DEFAULT_SEED))


@pytest.fixture(scope="session")
def seed() -> int:
    """The seed of this run."""
    return current_seed()


@pytest.fixture(scope="session")
def full(pytestconfig: pytest.Config) -> bool:
    """True when the whole sweep was asked for."""
    return bool(pytestconfig.getoption("full"))


@pytest.fixture(scope="session")
def report_counts(pytestconfig: pytest.Config) -> Callable[[str, int], None]:
    """Adds to a count of the closing line of JSON: report_counts("tokens_compared", 512)."""

    def add(name: str, amount: int = 1) -> None:
        pytestconfig.stash[COUNTS][name] += amount

    return add


class Recorder:
    """Counts outcomes while the session runs."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self._skip(report.nodeid, _reason(report.longrepr))
        if report.failed or (report.when == "call" and report.passed):
            self._config.stash[OUTCOMES][report.outcome] += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self._skip_module(report.nodeid, _reason(report.longrepr))
        if report.failed:
            self._config.stash[OUTCOMES]["failed"] += 1

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Takes what a process of pytest-xdist counted; one that died has handed nothing over."""
        handed = getattr(node, "workeroutput", {})
        self._config.stash[COUNTS].update(handed.get("paceline_counts", {}))
        for name, reason in handed.get("paceline_skipped_modules", {}).items():
            self._skip_module(name, reason)

    def _skip_module(self, name: str, reason: str) -> None:
        """Every process of pytest-xdist collects, and meets the same skip."""
        if name not in self._config.stash[SKIPPED_MODULES]:
            self._config.stash[SKIPPED_MODULES][name] = reason
            self._skip(name, reason)

    def _skip(self, name: str, reason: str) -> None:
        self._config.stash[OUTCOMES]["skipped"] += 1
        if os.environ.get("CI") == "true" or reason in ("", "Skipped", "Skipped: unconditional skip"):
            self._config.stash[SKIPS].append(f"{name}: {reason}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._config.stash[SKIPS] and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if hasattr(self._config, "workeroutput"):
            counts = self._config.stash[COUNTS]
            self._config.workeroutput["paceline_counts"] = dict(counts)
            self._config.workeroutput["paceline_skipped_modules"] = self._config.stash[SKIPPED_MODULES]


def _reason(longrepr: object) -> str:
    return str(longrepr[2]) if isinstance(longrepr, tuple) else str(longrepr)


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.pluginmanager.register(Recorder(session.config), "paceline-recorder")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for skip in config.stash[SKIPS]:
        terminalreporter.write_line(f"FORBIDDEN SKIP {skip}")


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    outcomes = config.stash.get(OUTCOMES, None)
    if outcomes is None or config.option.collectonly or config.option.help or hasattr(config, "workerinput"):
        return
    line: dict[str, object] = {"name": "paceline"}
    line |= {outcome: outcomes[outcome] for outcome in ("passed", "failed", "skipped")}
    line |= {"seed": current_seed(), "full": bool(config.getoption("full"))}
    line |= dict(sorted(config.stash[COUNTS].items()))
    config.get_terminal_writer().line(json.dumps(line))
