"""Tests under full/ need tools that only make test-deploy installs."""

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if collection_path.name == "full" and not config.getoption("--full") else None
