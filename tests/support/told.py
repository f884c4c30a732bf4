"""What a test's own subject logged: threads and garbage that another test left in this process may log beside it."""

import logging

import pytest

OURS = ("services", "deploy", "paceline", "models")


def told(caplog: pytest.LogCaptureFixture, *loggers: str) -> list[logging.LogRecord]:
    """Records of these loggers and those below them; without one, of all of the project's own."""
    begun = tuple(f"{name}." for name in loggers or OURS)
    return [record for record in caplog.records if f"{record.name}.".startswith(begun)]
