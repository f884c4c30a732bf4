"""Says what this machine has, what is missing and what to do."""

import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from deploy.cluster.mps import CONTROL, daemons
from paceline import bundle
from paceline.commands.parsing import Parser
from services.common.pair.mps import PIPES, mps_serves
from services.common.preflight.limits import limit_problem
from services.common.serving.process import take_signals

PACKAGES = ("grpcio", "protobuf", "torch", "ray", "prometheus-client", "tokenizers", "safetensors")
GATEWAY_PORT = 50051
CHECKOUT = bundle.start() == "make up"
INSTALL = "make setup" if CHECKOUT else "pip install 'paceline[serve]'"
FREE_PORT = "make up ADDRESS=127.0.0.1:0" if CHECKOUT else "paceline serve --grpc 127.0.0.1:0"


@dataclass(frozen=True)
class Finding:
    """One look at the machine; advice is empty when nothing is to be done, or the value says it.

    fatal: paceline cannot run. warns: it runs, and people should know.
    """

    name: str
    value: str
    advice: str = ""
    fatal: bool = False
    warns: bool = False


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


def check_limits() -> Finding:
    """The shell's limits leave room for Ray and the services."""
    found = limit_problem()
    return Finding("limits", found.line, fatal=True) if found else Finding("limits", "leave room")


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
    check_limits,
    check_gpu,
    check_mps,
)


def check_start(prog: str) -> list[Finding]:
    """What `paceline serve` would say of the command line before it starts; nothing of the weights is fetched.

    Ends this process with code 2 and one line for flags that are refused.
    """
    # Imported where they are needed: what serves may not be installed.
    from deploy import up
    from deploy.checkpoints import examined
    from deploy.flags import arguments, as_typed
    from deploy.stack import StackError, judged

    chosen, told = arguments(prog), list[str]()
    asked = up.stack_settings(chosen)
    cluster = judged(asked)
    found = [Finding("flags", "as they should be")]
    try:
        up.check_ports(chosen.address, chosen.http, cluster)
    except StackError as error:
        found = [Finding("flags", as_typed(str(error), chosen.typed), fatal=True)]
    try:
        examined(asked, cluster, told.append)
    except StackError as error:
        model = Finding("model", as_typed(str(error), chosen.typed), fatal=True)
    else:
        drafter = f" with {chosen.drafter}" * bool(chosen.drafter and chosen.proposer == "dflash")
        model = Finding("model", f"{chosen.model} can be served{drafter}")
    return [*found, model, *(Finding("note", line, warns=True) for line in (*up.notes(chosen), *told))]


def asked(words: list[str], prog: str) -> bool:
    """Whether there is a command line to judge, once help and missing packages have been told."""
    parser = Parser(prog=prog, description=f"{__doc__} With words behind it, what {bundle.start()} would say of them.")
    parser.add_argument("model", nargs="?", default="", help="folder or hub id to look at, too; default: none")
    parser.add_argument(
        "--drafter", default="", help="folder or hub id of its drafter, mtp for the head in its own file; default: none"
    )
    parser.add_argument("--FLAG", metavar="VALUE", help=f"any flag of {bundle.start()}; default: none")
    if {"-h", "--help"} & {*words}:
        parser.parse_args(["--help"])
    if words and (missing := check_packages().advice):
        parser.error(missing)
    return bool(words)


def main() -> int:
    """Prints every finding; 1 when one of them is fatal, 130 when it is asked to end."""
    try:
        take_signals()
        return _tell()
    except KeyboardInterrupt:
        return 130


def _tell() -> int:
    words, prog = sys.argv[1:], "make doctor" if CHECKOUT else "paceline doctor"
    judged = asked(words, prog)
    if judged and not words[0].startswith("-"):
        sys.argv[1] = f"--model={words[0]}"
    # A line about flags ends this process, so it comes before all others.
    start = check_start(prog) if judged else [check_port()]
    findings = [check() for check in CHECKS] + start
    for finding in findings:
        mark = "FAIL" if finding.fatal else "warn" if finding.advice or finding.warns else "ok  "
        print(f"{mark} {finding.name:<14} {finding.value}" + (f"\n     -> {finding.advice}" if finding.advice else ""))
    return 1 if any(finding.fatal for finding in findings) else 0


if __name__ == "__main__":
    raise SystemExit(main())
