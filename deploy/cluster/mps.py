"""A CUDA MPS daemon of our own: started before the pairs, told to quit after them; daemons of others are left alone."""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Literal

from services.common.pair.mps import PIPES, mps_serves
from services.common.serving.process import Watched, name_of

CONTROL = "nvidia-cuda-mps-control"
LOGS = "CUDA_MPS_LOG_DIRECTORY"
START_S, QUIT_S, LOOK_S = 30.0, 60.0, 0.25
# How long a daemon that has told of its start may take to be seen.
SEEN_S = 2.0
Wanted = Literal["auto", "true", "false"]

logger = logging.getLogger(__name__)


class MpsError(RuntimeError):
    """MPS was asked for and cannot be had."""


class Mps:
    """The daemon through which the pairs of this machine share their GPUs, if there is to be one.

    auto starts it where the driver's control program is there and nobody else's daemon runs; true starts it or fails.
    A daemon that CUDA_MPS_PIPE_DIRECTORY names is the operator's: it serves the pairs and is neither started nor ended.
    """

    def __init__(self, wanted: Wanted, run_dir: Path) -> None:
        self._wanted = wanted
        self._run_dir = run_dir
        self._environment: dict[str, str] = {}
        self._runs = False
        self._daemon: Watched | None = None

    def prepare(self) -> None:
        """Gives the processes of the pairs a folder of pipes of their own; call it before Ray hands its environment on.

        Without it another user's daemon in the default folder would serve them, and a fault of one process would end
        that user's work too.
        """
        if PIPES in os.environ and mps_serves():
            return
        folder = tempfile.mkdtemp(prefix="mps-", dir=self._run_dir)
        self._environment = {PIPES: folder, LOGS: folder}
        os.environ.update(self._environment)

    def start(self, on_gpus: bool) -> None:
        """Starts the daemon if it is wanted and there are GPUs to share.

        Raises:
            MpsError: when it is wanted for certain and cannot be had.
        """
        if self._wanted == "false" or not self._environment:
            return
        reason = self._hindrance(on_gpus) or self._started()
        self._runs = not reason
        if self._runs:
            self._daemon = self._held()
        if reason and self._wanted == "true":
            raise MpsError(f"mps: {reason}")
        logger.info("MPS serves the pairs" if self._runs else "no MPS", extra={"data": {"reason": reason}})

    def _hindrance(self, on_gpus: bool) -> str:
        if not on_gpus:
            return "there is no GPU to share"
        if not shutil.which(CONTROL):
            return f"the driver's {CONTROL} is not installed"
        others = daemons() if self._wanted == "auto" else []
        return f"a daemon of somebody else runs: {others}" if others else ""

    def _started(self) -> str:
        """Starts the daemon; returns why that failed."""
        try:
            subprocess.run(
                [CONTROL, "-d"], check=True, timeout=START_S, env=self._whole(), capture_output=True, text=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            return f"{CONTROL} does not start: {getattr(error, 'stderr', None) or error}"
        return ""

    def _held(self) -> Watched | None:
        """The daemon by pidfd, found by the folder in its environment; it has no server yet, which would be alike."""
        mark = f"{PIPES}={self._environment[PIPES]}\0".encode()
        end = time.monotonic() + SEEN_S
        while time.monotonic() < end:
            for pid in daemons():
                with contextlib.suppress(OSError):
                    if mark in Path(f"/proc/{pid}/environ").read_bytes():
                        return Watched(pid)
            time.sleep(0.05)
        logger.warning("the MPS daemon cannot be watched")
        return None

    async def until_lost(self) -> None:
        """Waits until the daemon has ended without being told to; for ever when none of ours runs."""
        while self._daemon is None or self._daemon.alive:
            await asyncio.sleep(LOOK_S)
        self._runs = False

    def stop(self) -> None:
        """Tells the daemon to quit, if it is ours."""
        if self._runs:
            self._runs = False
            try:
                subprocess.run([CONTROL], input="quit\n", text=True, check=True, timeout=QUIT_S, env=self._whole())
            except (OSError, subprocess.SubprocessError):
                logger.exception("the MPS daemon does not quit")

    def _whole(self) -> dict[str, str]:
        return {**os.environ, **self._environment}


def end_below(run_dir: Path) -> None:
    """SIGKILL to daemons whose pipes lie below a folder: their controller was killed before it could end them."""
    for pid in daemons():
        try:
            if f"{PIPES}={run_dir}/".encode() in Path(f"/proc/{pid}/environ").read_bytes():
                os.kill(pid, signal.SIGKILL)
        except OSError:
            continue


def daemons() -> list[int]:
    """Process ids of every MPS daemon and server that this machine shows."""
    pids = [int(process.name) for process in Path("/proc").glob("[0-9]*")]
    # The kernel keeps 15 characters of a name.
    return [pid for pid in pids if name_of(pid) == CONTROL[:15]]
