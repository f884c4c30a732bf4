"""A service of an image, started by its entry point and ended as Kubernetes does it."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.image.image import Image

READY_S = 300.0
STOP_S = 60.0


@contextmanager
def serving(
    image: Image, flags: list[str], folder: Path, binds: dict[Path, str], user: int | None = None
) -> Iterator[dict[str, str]]:
    """The addresses that the entry point prints; afterwards it must end with 0 at SIGTERM.

    Raises:
        AssertionError: it did not start, or did not end well; the message is its log.
    """
    output, log = folder / "out", folder / "log"
    reads, writes = os.pipe()
    command = image.command(*image.file.entry, *flags, binds=binds, user=user)
    command[1:1] = ["--info-fd", str(writes)]
    with output.open("w") as out, log.open("w") as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors, pass_fds=[writes])
    os.close(writes)
    try:
        with os.fdopen(reads) as information:
            inside = int(json.load(information)["child-pid"])
        yield _addresses(process, output)
        os.kill(inside, signal.SIGTERM)
        assert process.wait(STOP_S) == 0, log.read_text()[-3000:]
    finally:
        process.kill()
        process.wait()


def _addresses(process: subprocess.Popen[bytes], output: Path) -> dict[str, str]:
    end = time.monotonic() + READY_S
    while time.monotonic() < end and process.poll() is None:
        if lines := [line for line in output.read_text().splitlines() if line.startswith("{")]:
            return dict(json.loads(lines[0]))
        time.sleep(0.1)
    raise AssertionError(output.with_name("log").read_text()[-3000:])
