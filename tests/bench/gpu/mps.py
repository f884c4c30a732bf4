"""NVIDIA's Multi-Process Service as a process of this user, with pipes of its own, ended in any case."""

import os
import subprocess
import tempfile
from types import TracebackType


class Mps:
    """A context in which pairs share the GPU through MPS, or, switched off, by time slices."""

    def __init__(self, wanted: bool) -> None:
        """Nothing starts yet."""
        self._wanted = wanted
        self._folder = tempfile.TemporaryDirectory(prefix="mps")
        self.environment = {
            "CUDA_MPS_PIPE_DIRECTORY": self._folder.name,
            "CUDA_MPS_LOG_DIRECTORY": self._folder.name,
        }

    def __enter__(self) -> dict[str, str]:
        """Starts the daemon; returns the environment of processes that shall use it."""
        if not self._wanted:
            return {}
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env={**os.environ, **self.environment}, check=True)
        return self.environment

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Quits the daemon."""
        if self._wanted:
            command = ["nvidia-cuda-mps-control"]
            subprocess.run(command, input="quit\n", text=True, env={**os.environ, **self.environment}, check=False)
        self._folder.cleanup()
