"""The command before any of its work: odd surroundings, Ctrl-C while modules are imported, and what is imported."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import paceline
from paceline import bundle

SERVICES = ("/paceline/commands/", "/paceline/__main__", "/deploy/", "/services/")
"""Where Ctrl-C is taken. Python reads `paceline/__init__.py` before any line of the command's can take it."""


@pytest.mark.parametrize("closed", range(1, 8))
def test_commands_run_with_input_output_and_errors_closed(closed: int) -> None:
    numbers = " ".join(f"{number}>&-" for number in range(3) if closed >> number & 1)
    for words, code in (("--version", 0), ("sevre", 2), ("doctor --help", 0)):
        shell = f"exec {sys.executable} -m paceline {words} {numbers}"
        ran = subprocess.run(["bash", "-c", shell], cwd=bundle.root(), capture_output=True, text=True, check=False)
        assert (ran.returncode, "Traceback" in ran.stdout + ran.stderr) == (code, False), (words, numbers)


def test_a_working_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    shell = f"mkdir {tmp_path}/d && cd {tmp_path}/d && rmdir {tmp_path}/d && exec {sys.executable} -m paceline serve x"
    environment = os.environ | {"PYTHONPATH": str(bundle.root())}
    ran = subprocess.run(["bash", "-c", shell], env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", f"{bundle.GONE}\n")


def test_ctrl_c_at_any_moment_of_a_start_is_told_without_a_trace(full: bool) -> None:
    for step in range(60 if full else 12):
        command = [sys.executable, "-m", "paceline", "doctor"]
        with subprocess.Popen(command, cwd=bundle.root(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
            time.sleep(step * (0.01 if full else 0.05))
            run.send_signal(signal.SIGINT)
            _, told = run.communicate(timeout=60)
        assert not any(name.encode() in told for name in SERVICES), told


def test_a_command_without_a_gateway_imports_no_grpc() -> None:
    asked = "import sys; from paceline.commands import main; main(['--version']); assert 'grpc' not in sys.modules"
    subprocess.run([sys.executable, "-c", asked], cwd=bundle.root(), capture_output=True, check=True)


def test_every_name_of_the_package_is_there() -> None:
    assert {*paceline.__all__} <= {*dir(paceline)}
    assert all(getattr(paceline, name) is not None for name in paceline.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Clients'"):
        _ = paceline.Clients
