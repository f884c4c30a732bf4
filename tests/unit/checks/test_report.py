"""The closing line of JSON, and red skips."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

PLUGIN = ("-p", "tests.support.report", "-p", "no:cacheprovider")
TWO = ("-p", "xdist", "-p", "tests.support.parallel", "--numprocesses=2")
ROOT = Path(__file__).resolve().parents[3]


def run(folder: Path, body: str, ci: str = "", flags: Sequence[str] = ()) -> tuple[int, str, dict[str, object]]:
    (folder / "test_it.py").write_text(f"import pytest\n\n{body}")
    # Plugins that are not looked at would take most of the time.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CI": ci, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", *PLUGIN, *flags, str(folder)]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=180, check=False
    )
    *_, closing, last = done.stdout.strip().splitlines()
    return done.returncode, closing, json.loads(last)


def test_json_is_the_last_line_and_the_closing_line_stands_before_it(tmp_path: Path) -> None:
    code, closing, line = run(tmp_path, "def test_a(report_counts):\n    report_counts('tokens', 7)\n")
    assert code == 0
    assert "1 passed" in closing
    assert (line["passed"], line["failed"], line["skipped"], line["tokens"]) == (1, 0, 0, 7)


def test_a_failure_is_counted(tmp_path: Path) -> None:
    code, closing, line = run(tmp_path, "def test_a():\n    assert 0\n\ndef test_b():\n    pass\n")
    assert code == 1
    assert "1 failed, 1 passed" in closing
    assert (line["passed"], line["failed"]) == (1, 1)


@pytest.mark.parametrize(
    ("ci", "reason", "code"), [("", "needs the moon", 0), ("true", "needs the moon", 1), ("", "", 1)]
)
def test_skips_are_red_in_ci_or_without_a_reason(tmp_path: Path, ci: str, reason: str, code: int) -> None:
    got, _, line = run(tmp_path, f"def test_a():\n    pytest.skip({reason!r})\n", ci)
    assert (got, line["skipped"]) == (code, 1)


def test_an_import_error_is_a_failure(tmp_path: Path) -> None:
    code, _, line = run(tmp_path, "import no_such_module\n")
    assert code != 0
    assert line["failed"] == 1


def test_what_two_processes_counted_is_added(tmp_path: Path) -> None:
    (tmp_path / "test_skipped.py").write_text("import pytest\npytest.skip('needs the moon', allow_module_level=True)\n")
    body = "@pytest.mark.parametrize('amount', [3, 4])\ndef test_a(report_counts, amount):\n"
    body += "    report_counts('tokens', amount)\n\ndef test_b():\n    assert 0\n\n"
    body += "@pytest.fixture(params=[True, False])\ndef broken(request):\n    assert request.param, 'before'\n"
    body += "    yield\n    assert 0, 'after'\n\ndef test_c(broken):\n    pass\n"
    code, closing, line = run(tmp_path, body, flags=TWO)
    assert code == 1
    assert "1 failed, 3 passed, 1 skipped, 2 errors" in closing, "processes tell what fails before and after a test"
    assert (line["passed"], line["failed"], line["skipped"], line["tokens"]) == (3, 3, 1, 7)


def test_the_tests_of_a_file_stay_in_one_process(tmp_path: Path) -> None:
    """Each process that has one makes what the file shares anew."""
    body = "import os, pathlib\n\n@pytest.mark.parametrize('number', range(4))\ndef test_a(number):\n"
    body += "    mine = pathlib.Path(__file__ + '.' + os.environ['PYTEST_XDIST_WORKER'])\n    mine.touch()\n"
    for name in "bc":
        (tmp_path / f"test_{name}.py").write_text(f"import pytest\n\n{body}")
    code, _, line = run(tmp_path, body, flags=(*TWO, "--dist=loadgroup", "--no-loadscope-reorder"))
    assert (code, line["passed"]) == (0, 12)
    assert sorted(file.name.partition(".py.")[0] for file in tmp_path.glob("*.py.gw*")) == [
        "test_b",
        "test_c",
        "test_it",
    ]


def test_a_module_that_is_skipped_in_two_processes_is_red_in_ci(tmp_path: Path) -> None:
    (tmp_path / "test_skipped.py").write_text("import pytest\npytest.skip('needs the moon', allow_module_level=True)\n")
    code, _, line = run(tmp_path, "def test_a():\n    pass\n", "true", TWO)
    assert (code, line["skipped"]) == (1, 1)


def test_where_a_test_is_stuck_is_shown_before_its_time_is_up(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("import time\n\ndef test_a():\n    time.sleep(5.0)\n")
    command = [sys.executable, "-m", "pytest", "-p", "pytest_timeout", "-p", "tests.support.stuck", "--timeout=22.5"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [*command, str(tmp_path)], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "Timeout (0:00:02.5" in done.stderr and "in test_a" in done.stderr
