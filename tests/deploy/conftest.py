"""Tests under full/ need tools that only make test-deploy installs."""

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if collection_path.name == "full" and not config.getoption("--full") else None


def pytest_configure(config: pytest.Config) -> None:
    """Names the marker of tests that make test-chart leaves out."""
    config.addinivalue_line("markers", "tools: needs more than packages of pip: Node's, or Debian's Prometheus")
