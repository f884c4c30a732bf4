"""Whether kernels of several processes share the GPU."""

import os
from pathlib import Path


def mps_serves() -> bool:
    """Whether this process runs under NVIDIA's Multi-Process Service; otherwise processes take the GPU in turn."""
    folder = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
    return (folder / "control").exists()
