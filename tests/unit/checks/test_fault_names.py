"""make soak FAULT=... repeats the tests of one fault, and names the faults when there is none of that name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.faults import conftest


class Terminal:
    """What the reporter of pytest has of a run without tests."""

    def __init__(self) -> None:
        self.stats: dict[str, Any] = {}
        self.lines: list[str] = []

    def write_line(self, line: str) -> None:
        self.lines.append(line)


def test_faults_are_named_in_order() -> None:
    assert conftest.faults(["test_f10_a", "test_f2_b", "test_f2_c", "test_fuzz", "test_f14_pods[GCS]"]) == [
        "F2",
        "F10",
        "F14",
    ]


@pytest.mark.parametrize(("status", "told"), [(pytest.ExitCode.NO_TESTS_COLLECTED, 1), (pytest.ExitCode.OK, 0)])
def test_a_fault_that_no_test_has_is_told_with_those_that_are_there(status: pytest.ExitCode, told: int) -> None:
    terminal: Any = Terminal()
    run: Any = SimpleNamespace(stash={conftest.FAULTS: ["F1", "F14"]})
    conftest.pytest_terminal_summary(terminal, status, run)
    assert terminal.lines == ["no test has such a name; FAULT may be one of: F1 F14"] * told
