"""How a process computes: what decides the rounding of a sum, beside the checkpoint and the request."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import torch

_GPU_LIBRARIES = ("nvidia-cublas", "nvidia-cuda-nvrtc", "triton")
_CPU_INFO = Path("/proc/cpuinfo")
_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """The parts; processes that agree in all of them round alike.

    ``libraries`` are versions by name. ``kv_dtype`` is the type of keys and values and ``activations`` that of the rows
    that products read, where they are others than dtype.
    """

    release: str
    device: str
    libraries: Mapping[str, str]
    dtype: str
    kv_dtype: str = ""
    activations: str = ""

    @property
    def digest(self) -> str:
        """A short name of the parts."""
        parts = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(parts.encode()).hexdigest()[:_DIGITS]


def numerics_of(release: str, device: torch.device, dtype: str, kv_dtype: str = "", activations: str = "") -> Numerics:
    """Return how this process computes on a device, with the threads that it uses now."""
    libraries = _libraries(device)
    types = {"dtype": dtype, "kv_dtype": kv_dtype, "activations": activations}
    return Numerics(release=release, device=_device(device), libraries=libraries, **types)


def _device(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{_cpu_model()}, {torch.backends.cpu.get_cpu_capability()}, threads {threads}"


def _cpu_model() -> str:
    """The processor as Linux names it: a library for matrices chooses its kernels by it."""
    found = re.search(r"^model name\s*:\s*(.+)$", _CPU_INFO.read_text(errors="replace"), re.MULTILINE)
    return found[1].strip() if found else "CPU"


def _libraries(device: torch.device) -> dict[str, str]:
    """Versions of what multiplies; torch has a CPU's libraries linked in, and its version names its CUDA."""
    found = {"torch": str(torch.__version__)}
    for name in _GPU_LIBRARIES if device.type == "cuda" else ():
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
