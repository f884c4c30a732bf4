"""How several processes share a GPU."""

import os
from pathlib import Path
from typing import Literal

PIPES = "CUDA_MPS_PIPE_DIRECTORY"
Sharing = Literal["mps", "timeslice", "none"]


def mps_serves() -> bool:
    """Whether NVIDIA's Multi-Process Service serves this process; otherwise processes get slices of the GPU's time."""
    folder = Path(os.environ.get(PIPES, "/tmp/nvidia-mps"))
    return (folder / "control").exists()


def sharing(device: str) -> Sharing:
    """How processes on the device share it: at once (mps), in slices of time (timeslice), not at all on a CPU."""
    if not device.startswith("cuda"):
        return "none"
    return "mps" if mps_serves() else "timeslice"
