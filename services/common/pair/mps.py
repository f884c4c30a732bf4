"""Whether kernels of several processes share the GPU."""

import os
from pathlib import Path
from typing import Literal

PIPES = "CUDA_MPS_PIPE_DIRECTORY"
Sharing = Literal["mps", "timeslice", "none"]


def mps_serves() -> bool:
    """Whether this process runs under NVIDIA's Multi-Process Service; otherwise processes take the GPU in turn."""
    folder = Path(os.environ.get(PIPES, "/tmp/nvidia-mps"))
    return (folder / "control").exists()


def sharing(device: str) -> Sharing:
    """How processes on the device share it; none on a CPU."""
    if not device.startswith("cuda"):
        return "none"
    return "mps" if mps_serves() else "timeslice"
