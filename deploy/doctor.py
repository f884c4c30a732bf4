"""Says what this machine has, what is missing and what to do."""

import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from deploy.cluster.mps import CONTROL, daemons
from deploy.shipped import shipped_pair
from paceline import bundle
from paceline.commands.parsing import Parser
from services.common.pair.mps import PIPES, mps_serves
from services.common.preflight.checks import Asked, problems
from services.common.preflight.problem import Problem

PACKAGES = ("grpcio", "protobuf", "torch", "ray", "prometheus-client", "tokenizers", "safetensors")
GATEWAY_PORT = 50051
CHECKOUT = bundle.start() == "make up"
INSTALL = "make setup" if CHECKOUT else "pip install 'paceline[serve]'"
FREE_PORT = "make up ADDRESS=127.0.0.1:0" if CHECKOUT else "paceline serve --grpc 127.0.0.1:0"


@dataclass(frozen=True)
class Finding:
    """One look at the machine; advice is empty when nothing is to be done. fatal: paceline cannot run."""

    name: str
    value: str
    advice: str = ""
    fatal: bool = False


def check_platform() -> Finding:
    """Linux on x86-64."""
    value = f"{platform.system()} {platform.machine()}"
    right = platform.system() == "Linux" and platform.machine() == "x86_64"
    return Finding("platform", value, "" if right else "paceline runs on Linux x86-64 only", not right)


def check_python() -> Finding:
    """Python 3.11 or 3.12."""
    right = sys.version_info[:2] in ((3, 11), (3, 12))
    return Finding("python", platform.python_version(), "" if right else "use Python 3.11 or 3.12", not right)


def check_packages() -> Finding:
    """Run-time packages."""
    missing = [name for name in PACKAGES if not _version(name)]
    value = ", ".join(f"{name} {_version(name)}" for name in PACKAGES if name not in missing)
    return Finding("packages", value or "none", f"run {INSTALL}; missing: {', '.join(missing)}" if missing else "")


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def check_memory() -> Finding:
    """At least 4 GiB of memory free."""
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free_gib = int(fields["MemAvailable"].split()[0]) / 2**20
    return Finding("memory free", f"{free_gib:.1f} GiB", "" if free_gib >= 4 else "the demo needs about 4 GiB")


def check_shared_memory() -> Finding:
    """Ray keeps its object store in /dev/shm."""
    free_mib = shutil.disk_usage("/dev/shm").free / 2**20
    return Finding("/dev/shm free", f"{free_mib:.0f} MiB", "" if free_mib >= 128 else "give it 128 MiB (shm_size)")


def check_port() -> Finding:
    """The gateway's usual port is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", GATEWAY_PORT))
        except OSError:
            return Finding("port", f"{GATEWAY_PORT} is taken", f"{FREE_PORT} takes a free one")
    return Finding("port", f"{GATEWAY_PORT} is free")


def check_gpu() -> Finding:
    """GPU and driver, as nvidia-smi tells them."""
    if not shutil.which("nvidia-smi"):
        return Finding("gpu", "none: services run on the CPU")
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    found = subprocess.run(query, capture_output=True, text=True, check=False, timeout=30)
    if found.returncode:
        return Finding("gpu", "nvidia-smi fails", "mend the driver: " + found.stderr.strip()[:200])
    return Finding("gpu", "; ".join(found.stdout.strip().splitlines()))


def check_mps() -> Finding:
    """How target and drafter would share the GPU."""
    if not shutil.which("nvidia-smi"):
        return Finding("mps", "not applicable")
    if PIPES in os.environ and mps_serves():
        return Finding("mps", f"on ({os.environ[PIPES]}): fast hand-off, a CUDA fault of one process ends both")
    if others := daemons():
        return Finding("mps", f"a daemon of somebody else runs ({others[0]}) and is left alone: time slices")
    if shutil.which(CONTROL):
        return Finding("mps", f"{bundle.start()} starts a daemon: fast hand-off, a CUDA fault of one process ends both")
    return Finding("mps", f"no {CONTROL}: target and drafter time-slice, isolated from each other's faults")


CHECKS: tuple[Callable[[], Finding], ...] = (
    check_platform,
    check_python,
    check_packages,
    check_memory,
    check_shared_memory,
    check_port,
    check_gpu,
    check_mps,
)


def check_model(model: str, drafter: str) -> list[Finding]:
    """Whether a checkpoint, and a drafter's with it, can be served here; nothing of the weights is fetched."""
    pair = shipped_pair(model)
    asked = Asked(pair.model, drafter or pair.drafter) if pair else Asked(model, drafter)
    found = list(problems(asked))
    if not any(one.fatal for one in found):
        told = f"{model} can be served" + (f" with {drafter}" if drafter else "")
        return [Finding("model", told), *(Finding("model", _without_remedy(one), one.remedy) for one in found)]
    see = "see docs/troubleshooting.md"
    return [Finding("model", _without_remedy(one), one.remedy or see, one.fatal) for one in found]


def _without_remedy(problem: Problem) -> str:
    return replace(problem, remedy="").line


def main() -> int:
    """Prints every finding; 1 when one of them is fatal."""
    parser = Parser(prog="make doctor" if CHECKOUT else "paceline doctor", description=__doc__)
    parser.add_argument("model", nargs="?", default="", help="folder or hub id to look at, too; default: none")
    parser.add_argument(
        "--drafter", default="", help="folder or hub id of its drafter, mtp for the head in its own file; default: none"
    )
    chosen = parser.only()
    if chosen.drafter and not chosen.model:
        parser.error("--drafter: name the model too")
    findings = [check() for check in CHECKS]
    if chosen.model:
        findings += check_model(chosen.model, chosen.drafter)
    for finding in findings:
        mark = "ok  " if not finding.advice else "FAIL" if finding.fatal else "warn"
        print(f"{mark} {finding.name:<14} {finding.value}" + (f"\n     -> {finding.advice}" if finding.advice else ""))
    return 1 if any(finding.fatal for finding in findings) else 0


if __name__ == "__main__":
    raise SystemExit(main())
