"""Memory of the GPU as a whole, which shows what other processes hold."""

import torch


def used_bytes() -> int:
    """Bytes in use on the GPU, whoever holds them; 0 on a machine without one."""
    if not torch.cuda.is_available():
        return 0
    free, total = torch.cuda.mem_get_info()
    return total - free
