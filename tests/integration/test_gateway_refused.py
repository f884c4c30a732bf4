"""A gateway that cannot run says why in one line, ends with 1 and leaves nothing."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.pair import ENVIRONMENT
from tests.support.fakes_tokenizer import write_tokenizer


def refused(tokenizer: Path, *flags: str) -> str:
    """The line of a gateway that does not start."""
    command = [sys.executable, "-m", "services.gateway", "--tokenizer", str(tokenizer), "--targets", "127.0.0.1:1"]
    done = subprocess.run(
        [*command, *flags], capture_output=True, text=True, check=False, timeout=120, env={**os.environ, **ENVIRONMENT}
    )
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if line.startswith("gateway: ")]
    assert len(lines) == 1 and "Traceback" not in done.stderr, done.stderr
    assert not done.stdout
    return lines[0]


@pytest.mark.parametrize("listener", ["http", "grpc", "metrics"])
def test_an_address_that_is_taken(tmp_path: Path, listener: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert f"cannot bind {address}" in refused(write_tokenizer(tmp_path / "model"), f"--{listener}", address)


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    model = write_tokenizer(tmp_path / "model")
    assert "no such folder" in refused(tmp_path / "nowhere")
    assert "none.pem" in refused(
        model, "--tls-cert", str(tmp_path / "none.pem"), "--tls-key", str(tmp_path / "none.pem")
    )
