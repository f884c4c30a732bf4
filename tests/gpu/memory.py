"""Memory of the GPU as a whole, which shows what other processes hold, and whose it is."""

import subprocess

import torch


def used_bytes() -> int:
    """Bytes in use on the GPU, whoever holds them; 0 on a machine without one."""
    if not torch.cuda.is_available():
        return 0
    free, total = torch.cuda.mem_get_info()
    return total - free


def used_by_process() -> dict[int, int]:
    """Bytes in use on all GPUs by process id, as the driver tells; nothing where it tells nothing."""
    asked = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    lines = [line.split(",") for line in told.splitlines() if line.strip()]
    return {int(pid): int(size) << 20 for pid, size in lines if size.strip().isdigit()}
