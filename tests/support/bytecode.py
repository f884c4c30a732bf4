"""`python -m tests.support.bytecode`: compiles the project and its tests once, before processes that each would.

pytest writes the asserts of test files anew, and each process that collects them would do it for all.
"""

from __future__ import annotations

import os
import py_compile
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from _pytest.assertion import AssertionState, rewrite
from _pytest.config import Config, get_config

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("paceline", "services", "deploy", "models", "tests")


def main() -> int:
    """Writes what is missing; returns 0, for what does not compile is told where it is imported."""
    sys.dont_write_bytecode = False
    sources = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    count = os.cpu_count() or 1
    with ProcessPoolExecutor(count, get_context("fork")) as pool:
        list(pool.map(compile_all, [sources[place::count] for place in range(count)]))
    return 0


def compile_all(sources: Sequence[Path]) -> None:
    """Compiles files, tests as pytest does."""
    config = get_config()
    for path in sources:
        if path.name.startswith("test_"):
            rewrite_asserts(path, config)
        else:
            py_compile.compile(str(path), doraise=False, quiet=2)


def rewrite_asserts(path: Path, config: Config) -> None:
    """Leaves what pytest finds in place of a test file, if it is not there already."""
    folder = rewrite.get_cache_dir(path)
    kept = folder / f"{path.stem}{rewrite.PYC_TAIL}"
    if rewrite._read_pyc(path, kept) is None:
        told, code = rewrite._rewrite_test(path, config)
        rewrite.try_makedirs(folder)
        rewrite._write_pyc(AssertionState(config, "rewrite"), code, told, kept)


if __name__ == "__main__":
    sys.exit(main())
