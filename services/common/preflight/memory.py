"""What weights need at least, against the memory of this machine; imports no torch.

It is a floor: the target plans the whole, K/V and steps included, when it has the device.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from services.common.preflight.problem import Problem

_PROCESSES = (848 + 560) << 20
"""Bytes on a GPU that both processes of a pair take beside tensors."""
_CPU_BYTES = 512 << 20
"""Bytes for slots and K/V on a CPU."""
_GROUP = Path("/sys/fs/cgroup")
_LIMITS = (
    ("memory.max", "memory.current", "memory.stat", ("active_file", "inactive_file")),
    (
        "memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat",
        ("total_active_file", "total_inactive_file"),
    ),
)  # fmt: skip
"""Files of both kinds of groups: the most that processes may take, what they take, and what of it is files' alone."""
_SMI_S = 20.0
SIZES = {"float32": 4, "float64": 8, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class Gpu:
    """One GPU as nvidia-smi tells it, in bytes."""

    name: str
    total: int
    free: int


@dataclass(frozen=True)
class Need:
    """Numbers of weights: target, drafter, the tables of which a drafter on a GPU has copies, and the target's experts.

    A GPU holds experts of `expert_bytes`, 0: all. Where experts are `coded`, a GPU may have a byte for each number.
    """

    target: int
    drafter: int
    tables: int
    experts: int = 0
    expert_bytes: int = 0
    coded: bool = False

    def saved(self, size: int) -> int:
        """Bytes that codes of experts take less than their numbers."""
        return (size - 1) * self.experts if self.coded else 0

    def beside(self, size: int, pairs: int) -> int:
        """Bytes of the experts that a GPU reads in the memory of its machine."""
        own = size * self.experts - self.saved(size)
        return pairs * max(0, own - self.expert_bytes) if self.expert_bytes else 0

    def on_gpu(self, size: int, pairs: int) -> int:
        """Bytes at least, with numbers of `size` bytes, for all pairs of one GPU."""
        copies = self.tables if self.drafter else 0
        own = size * (self.target + self.drafter + copies) - self.saved(size)
        return pairs * (own + _PROCESSES) - self.beside(size, pairs)

    def on_cpu(self, size: int, pairs: int) -> int:
        """The same for a machine without one."""
        return pairs * (size * (self.target + self.drafter) + _CPU_BYTES)


def gpus() -> tuple[Gpu, ...]:
    """The GPUs that this process may use; none without a driver that answers."""
    if not shutil.which("nvidia-smi"):
        return ()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible in ("", "-1"):
        return ()
    query = ["nvidia-smi", "--query-gpu=name,memory.total,memory.free", "--format=csv,noheader,nounits"]
    query += [f"--id={visible}"] if visible else []
    try:
        told = subprocess.run(query, capture_output=True, text=True, check=True, timeout=_SMI_S).stdout
        rows = [line.rsplit(",", 2) for line in told.splitlines() if line.strip()]
        return tuple(Gpu(name.strip(), int(total) << 20, int(free) << 20) for name, total, free in rows)
    except (OSError, ValueError, subprocess.SubprocessError):
        return ()


def free_bytes(group: Path = _GROUP) -> int:
    """Memory that processes of this machine, or container, may still take."""
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(fields["MemAvailable"].split()[0]) << 10
    for most, taken, told, cached in _LIMITS:
        try:
            limit = int((group / most).read_text())
            used = int((group / taken).read_text())
            counts = dict(line.split() for line in (group / told).read_text().splitlines())
            free = min(free, limit - max(0, used - sum(int(counts[name]) for name in cached)))
        except (OSError, ValueError, KeyError):
            continue
    return max(0, free)


def memory_problem(
    name: str, need: Need, found: tuple[Gpu, ...], dtype: str, fraction: float, pairs: int
) -> Problem | None:
    """What is wrong with the memory for this model: of the largest GPU if there is one, else of the machine."""
    if not found:
        bytes_, have = need.on_cpu(SIZES[dtype], pairs), free_bytes()
        if bytes_ <= have:
            return None
        sentence = f"needs at least {gb(bytes_)} of memory in {dtype}, and {gb(have)} are free"
        return Problem(name, sentence, _less(pairs, dtype))
    size, largest = need.on_gpu(SIZES[dtype], pairs), max(found, key=lambda one: one.total)
    may = int(fraction * largest.total)
    if size > may:
        sentence = f"needs at least {gb(size)} in {dtype}, and {fraction:g} of {largest.name}'s memory are {gb(may)}"
        return Problem(name, sentence, _less(pairs, dtype))
    if (beside := need.beside(SIZES[dtype], pairs)) > (have := free_bytes()):
        sentence = f"needs {gb(beside)} of memory for experts beside the GPU, and {gb(have)} are free"
        return Problem(name, sentence, "raise expert_bytes, or take a smaller model")
    if size > max(one.free for one in found):
        sentence = f"needs at least {gb(size)} in {dtype}, and other processes leave {gb(largest.free)} of the GPU"
        return Problem(name, sentence, "end them: nvidia-smi lists them")
    return None


def _less(pairs: int, dtype: str) -> str:
    more = "take fewer pairs, or " if pairs > 1 else ""
    narrow = " or --dtype bfloat16" if SIZES[dtype] > SIZES["bfloat16"] else ""
    return f"{more}take a smaller model{narrow}"


def gb(count: int) -> str:
    """A number of bytes in GB, for a line that people read."""
    return f"{count / 1e9:.1f} GB"
