"""A CUDA MPS daemon of our own: started before the pairs, always told to quit after them."""

import os
import subprocess
from pathlib import Path

CONTROL = "nvidia-cuda-mps-control"


def start(run_dir: Path) -> None:
    """Starts the daemon with folders of its own, which the pairs inherit through the environment.

    Raises:
        FileNotFoundError: when the driver's MPS control program is not installed.
        subprocess.CalledProcessError: when the daemon does not start.
    """
    for variable, name in (("CUDA_MPS_PIPE_DIRECTORY", "mps"), ("CUDA_MPS_LOG_DIRECTORY", "mps-log")):
        folder = Path(os.environ.setdefault(variable, str(run_dir / name)))
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    subprocess.run([CONTROL, "-d"], check=True, timeout=30)


def stop() -> None:
    """Tells the daemon to quit."""
    subprocess.run([CONTROL], input="quit\n", text=True, check=False, timeout=60)
