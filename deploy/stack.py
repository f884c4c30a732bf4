"""paceline on one machine: the cluster process and gateways, started and stopped together."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from deploy.cluster import derived
from deploy.cluster.settings import ClusterSettings
from deploy.fleet import Fleet
from deploy.run_folder import RunFolder
from deploy.starting import Starting
from services.common.pb.paceline.v1 import fleet_pb2, target_pb2, target_pb2_grpc
from services.common.request.errors import invalid_field
from services.common.request.limits import PROTOCOL_VERSION
from services.common.serving import settings
from services.common.serving.channel import connect_sync
from services.common.serving.parent import PARENT
from services.common.serving.process import end_session
from services.common.serving.tls import TlsFiles, refuse_unfit
from services.gateway.settings import GatewaySettings
from services.gateway.tenancy.tenants import TenantsFile, digest

REPOSITORY = Path(__file__).resolve().parents[1]
EMBEDDED = REPOSITORY / "models" / "embedded"


class StackError(RuntimeError):
    """The stack did not come up or ended: what a pair says of itself, else the end of the log at fault."""


class StackStoppedError(RuntimeError):
    """The stack was asked to end while it started."""


@dataclass(frozen=True)
class StackSettings:
    """What to start."""

    model: str = str(EMBEDDED / "target")
    """Folder of the target's checkpoint."""
    drafter: str = str(EMBEDDED / "drafter")
    """Folder of the drafter's checkpoint; empty for n-gram drafts."""
    proposer: str = "dflash"
    """What drafts: dflash, ngram or none."""
    model_name: str = "paceline-embedded"
    """Public name of the model."""
    pairs: int = 1
    """Pairs of target and drafter."""
    gateways: int = 1
    """Gateways before them."""
    gateway_address: str = "127.0.0.1:0"
    """Address of the first gateway."""
    ready_s: float = 180.0
    """Seconds in which every pair must serve."""
    stop_s: float = 30.0
    """Seconds that processes have to end."""
    cluster_flags: Sequence[str] = ()
    """Further flags of the controller."""
    gateway_flags: Sequence[str] = ()
    """Further flags of every gateway."""
    api_keys: Sequence[str] = field(default=(), repr=False)
    """Keys of which clients must send one; gateways read a file of their digests."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of all processes, beside those of this one."""
    typed: Mapping[str, str] = field(default_factory=dict)
    """Settings that were given by flags of other names, by which refusals name them."""


class ServiceProcess:
    """One service as a child process, which ends with this one; its first line of output tells the addresses."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        run_dir: Path,
        environment: Mapping[str, str],
        foreign: Collection[str] = (),
    ) -> None:
        self.name, self._asked = name, False
        self.log, self._lines = run_dir / f"{name}.log", run_dir / f"{name}.out"
        told = {**os.environ, **environment, PARENT: str(os.getpid())}
        everything = {key: value for key, value in told.items() if key not in foreign}
        with self.log.open("ab") as errors, self._lines.open("ab") as output:
            self.process = self._begin(command, everything, output, errors)

    def _begin(
        self, command: Sequence[str], environment: Mapping[str, str], output: IO[bytes], errors: IO[bytes]
    ) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, "-m", *command], stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
            cwd=REPOSITORY, env=environment, start_new_session=True,
        )  # fmt: skip

    def bound(self, timeout_s: float, stopped: threading.Event | None = None) -> dict[str, str]:
        """Waits for the line of addresses.

        Raises:
            StackError: when the process ends or the time passes before it.
            StackStoppedError: when stopped is set before it.
        """
        stopped = stopped or threading.Event()
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            for line in self._lines.read_text(errors="replace").splitlines():
                if line.startswith("{") and '"grpc"' in line:
                    return dict(json.loads(line))
            self.check()
            if stopped.wait(0.05):
                raise StackStoppedError
        raise StackError(f"{self.name} gave no address within {timeout_s:.0f} s\n{self.tail()}")

    def check(self) -> None:
        """Raises StackError when the process has ended."""
        code = self.process.poll()
        if code is not None:
            raise StackError(f"{self.name} ended with code {code}: {self.last_words()}")

    def last_words(self) -> str:
        """Why it ended, in one line: what it said itself or its last record of an error, else its last line."""
        lines = [line for line in self.tail().splitlines() if line.strip(" ^~")]
        for line in reversed(lines):
            if line.startswith(f"{self.name}: "):
                return line.removeprefix(f"{self.name}: ")
            record = _record(line)
            if record.get("level") in ("error", "critical"):
                return " ".join(str(record.get("message")).split())
        last = lines[-1] if lines else "it wrote nothing"
        return str(_record(last).get("message") or last)

    def tail(self, characters: int = 3000) -> str:
        """The end of the log."""
        return self.log.read_text(errors="replace")[-characters:]

    def ask(self) -> None:
        """Sends SIGTERM once: a second one could come when the process no longer handles it."""
        if self.process.poll() is None and not self._asked:
            self._asked = True
            self.process.send_signal(signal.SIGTERM)

    def stop(self, timeout_s: float = 30.0) -> int:
        """Ends the process by SIGTERM, and what lives of its session after timeout_s by SIGKILL; returns its code."""
        self.ask()
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            pass
        end_session(self.process.pid)
        return self.process.wait()


def _record(line: str) -> dict[str, object]:
    """A line of a log; empty when it is something else."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


class Stack:
    """Context manager: inside it, a gateway answers and every pair is ready.

    Raises:
        StackError: from entering, when a pair fails, a process ends or ready_s pass before that.
        StackStoppedError: from entering, when stopped is set before that.
    """

    def __init__(
        self,
        chosen: StackSettings,
        progress: Callable[[str], None] = lambda line: None,
        stopped: threading.Event | None = None,
        waiting: Callable[[Sequence[str], str], None] = lambda heads, text: None,
    ) -> None:
        """`progress` gets each step of the start; `waiting`, again and again, what is waited for and how far it is."""
        self.settings = chosen
        self._stopped, self._waiting, self._begun_s = stopped or threading.Event(), waiting, time.monotonic()
        self._fleet: Fleet | None = None
        try:
            self._folder = RunFolder()
        except OSError as error:
            told = f"no folder can be made in TMPDIR: {error.strerror or error}; TMPDIR=FOLDER names another"
            raise StackError(told) from error
        self.run_dir = self._folder.path
        self.processes: list[ServiceProcess] = []
        self._progress = progress
        self.fleet_address = ""
        self.gateway_addresses: tuple[str, ...] = ()
        self.gateway_metrics: tuple[str, ...] = ()
        self.gateway_http: tuple[str, ...] = ()

    @property
    def gateway_address(self) -> str:
        """Address of the first gateway."""
        return self.gateway_addresses[0]

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self) -> None:
        flags = self._cluster_flags()
        judged(self.settings)
        self._progress("starting Ray and the controller")
        cluster = self._launch("cluster", ["deploy.cluster", *flags], self._foreign(ClusterSettings, GatewaySettings))
        gateways_wait = self.settings.ready_s
        self.fleet_address = cluster.bound(gateways_wait, self._stopped)["grpc"]
        self._fleet = Fleet(self.fleet_address)
        self._progress("starting the gateway")
        gateways = [self._gateway(index) for index in range(self.settings.gateways)]
        bounds = [gateway.bound(gateways_wait, self._stopped) for gateway in gateways]
        self.gateway_addresses = tuple(bound["grpc"] for bound in bounds)
        self.gateway_metrics = tuple(bound["metrics"] for bound in bounds)
        self.gateway_http = tuple(bound["http"] for bound in bounds)
        self._progress(
            "waiting for the pair" if self.settings.pairs == 1 else f"waiting for {self.settings.pairs} pairs"
        )
        self.wait_ready(self.settings.ready_s)

    def _foreign(
        self, of: type[ClusterSettings | GatewaySettings], other: type[ClusterSettings | GatewaySettings]
    ) -> set[str]:
        return foreign(self.settings, of, other)

    def _launch(self, name: str, command: Sequence[str], foreign: Collection[str]) -> ServiceProcess:
        # What a process that had to be killed leaves behind goes with the folder of the run.
        place = {"TMPDIR": str(self.run_dir)}
        environment = {**self.settings.environment, **place}
        process = ServiceProcess(name, command, self.run_dir, environment, foreign)
        self.processes.append(process)
        return process

    def _cluster_flags(self) -> list[str]:
        cluster_dir = self.run_dir / "c"
        cluster_dir.mkdir(mode=0o700)
        return [*cluster_flags(self.settings), "--run-dir", str(cluster_dir)]

    def _gateway(self, index: int) -> ServiceProcess:
        s = self.settings
        address = s.gateway_address if index == 0 else "127.0.0.1:0"
        flags = ["--watch", self.fleet_address, "--tokenizer", s.model, "--grpc", address]
        flags += ["--model", s.model_name, *s.gateway_flags]
        flags += ["--tenants", str(self._tenants())] if s.api_keys else []
        foreign = self._foreign(GatewaySettings, ClusterSettings)
        return self._launch(f"gateway-{index}", ["services.gateway", *flags], foreign)

    def _tenants(self) -> Path:
        """The file of tenants that the keys make, readable by this user alone; it goes with the run folder."""
        path = self.run_dir / "tenants.toml"
        tenants = (
            f"[[tenant]]\nname = 'key-{number}'\nkey_sha256 = ['{digest(key)}']\n"
            for number, key in enumerate(self.settings.api_keys, 1)
        )
        path.touch(0o600)
        path.write_text("".join(tenants))
        return path

    def pairs(self) -> tuple[fleet_pb2.Pair, ...]:
        """The pairs as the controller announced them last."""
        return self._fleet.pairs if self._fleet is not None else ()

    def wait_ready(self, timeout_s: float) -> None:
        """Waits until every pair is ready.

        Raises:
            StackError: when a pair fails, a process ends or the time passes before that.
            StackStoppedError: when the stack is asked to end before that.
        """
        end = time.monotonic() + timeout_s
        starting = Starting(self.run_dir / "cluster.out")
        while time.monotonic() < end:
            self.check()
            pairs = self.pairs()
            self._tell(starting)
            failures = [pair.message for pair in pairs if pair.message]
            if failures:
                raise StackError(failures[0])
            if pairs and all(pair.state == fleet_pb2.PAIR_STATE_READY for pair in pairs):
                return
            if self._stopped.wait(0.05):
                raise StackStoppedError
        tails = "\n".join(f"{process.name}:\n{process.tail()}" for process in self.processes)
        raise StackError(f"no ready pair within {timeout_s:.0f} s\n{tails}\n{self.actor_logs()}")

    def _tell(self, starting: Starting) -> None:
        """Says where the workers are, if they have said so."""
        if stages := starting.stages():
            seconds = f"{time.monotonic() - self._begun_s:.0f} s"
            texts = ", ".join(stage.text for stage in stages)
            self._waiting([stage.head for stage in stages], f"{texts}; {seconds}")

    def check(self) -> None:
        """Raises StackError when a process has ended; a pair that failed knows better why than its log."""
        try:
            for process in self.processes:
                process.check()
        except StackError as error:
            failures = [pair.message for pair in self.pairs() if pair.state == fleet_pb2.PAIR_STATE_FAILED]
            if failures:
                raise StackError(failures[0]) from error
            raise

    def actor_logs(self) -> str:
        """The end of what target and drafter wrote, which the controller hands on."""
        return (self.run_dir / "cluster.out").read_text(errors="replace")[-8000:]

    def stop(self) -> None:
        """Asks every process to end, ends by force what is left after stop_s, and removes the run folder."""
        if self._fleet is not None:
            self._fleet.close()
        end = time.monotonic() + self.settings.stop_s
        for process in self.processes:
            process.ask()
        for process in reversed(self.processes):
            process.stop(max(0.0, end - time.monotonic()))
        self._folder.remove()


def cluster_flags(chosen: StackSettings) -> list[str]:
    """The controller's flags; the last of two counts."""
    flags = ["--model", chosen.model, "--proposer", chosen.proposer, "--model-name", chosen.model_name]
    flags += ["--drafter", chosen.drafter] if chosen.proposer == "dflash" else []
    return [*flags, "--pairs", str(chosen.pairs), *chosen.cluster_flags]


def judged(chosen: StackSettings) -> ClusterSettings:
    """The controller's settings as it will read them; ends this process with code 2 and one line for what it, or the
    gateway, would refuse.

    Raises:
        SystemExit: one would.
    """
    environ = {**os.environ, **chosen.environment}
    others = foreign(chosen, GatewaySettings, ClusterSettings)
    flags = ["--watch", "127.0.0.1:0", "--tokenizer", chosen.model, *chosen.gateway_flags]
    known = {name: value for name, value in environ.items() if name not in others}
    settings.load(GatewaySettings, flags, known, _files_are_there, chosen.typed)
    others = foreign(chosen, ClusterSettings, GatewaySettings)
    known = {name: value for name, value in environ.items() if name not in others}
    return settings.load(ClusterSettings, cluster_flags(chosen), known, derived.check, chosen.typed)


def _files_are_there(gateway: GatewaySettings) -> None:
    """Refuses files of a gateway's settings that it could not read.

    Raises:
        PacelineError, TenantsError: one of them; the setting or the file is named.
    """
    for name in ("tls_cert", "tls_key", "tls_ca", "tenants"):
        path = getattr(gateway, name)
        if "\n" in path:
            raise invalid_field(name, "is the text of a file where its path is wanted")
        if path and not os.access(path, os.R_OK):
            raise invalid_field(name, f"{path}: no such file, or not readable")
    refuse_unfit(TlsFiles(gateway.tls_cert, gateway.tls_key, gateway.tls_ca))
    if gateway.tenants:
        TenantsFile(Path(gateway.tenants))


def foreign(
    chosen: StackSettings,
    of: type[ClusterSettings | GatewaySettings],
    other: type[ClusterSettings | GatewaySettings],
) -> set[str]:
    """Variables that only the other service knows: a service that reads an unknown one refuses to start."""
    environ = {**os.environ, **chosen.environment}
    return settings.unknown(of, environ) - settings.unknown(other, environ)


def describe_target(address: str, secret: str = "") -> target_pb2.TargetServiceDescribeResponse:
    """What a target tells of itself to those who know its secret.

    Raises:
        grpc.RpcError: it does not answer.
    """
    asked = target_pb2.TargetServiceDescribeRequest(protocol_version=PROTOCOL_VERSION, secret=secret)
    with connect_sync(address) as channel:
        told: target_pb2.TargetServiceDescribeResponse
        told = target_pb2_grpc.TargetServiceStub(channel).Describe(asked, timeout=30.0)
    return told
