"""Gateways with one pair each, one for every way of choosing the width, all up at once so that they can alternate."""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from deploy.stack import EMBEDDED, ServiceProcess


@dataclass(frozen=True, slots=True)
class Mode:
    """A way of decoding: which pair serves it, with which flags, and whether requests ask for drafts."""

    name: str
    pair: str
    flags: tuple[str, ...] = ()
    speculate: bool = True


def modes(widths: Sequence[int]) -> list[Mode]:
    """Plain and adaptive share a pair; every fixed width has its own."""
    every = ",".join(str(width) for width in widths)
    adaptive = ("--widths", every)
    fixed = [Mode(f"w{w}", f"w{w}", ("--widths", f"1,{w}", "--adaptive", "false")) for w in widths if w > 1]
    return [Mode("plain", "adaptive", adaptive, speculate=False), *fixed, Mode("adaptive", "adaptive", adaptive)]


class Pairs:
    """Context manager: inside it `addresses` maps the name of a pair to its gateway. Pairs are the embedded ones."""

    def __init__(
        self,
        wanted: Sequence[Mode],
        slots: int,
        progress: Callable[[str], None],
        model: Path = EMBEDDED / "target",
        drafter: Path = EMBEDDED / "drafter",
    ) -> None:
        self._model, self._drafter = str(model), str(drafter)
        self._wanted = {mode.pair: mode.flags for mode in wanted}
        self._slots = slots
        self._progress = progress
        self._exit = ExitStack()
        self.addresses: dict[str, str] = {}

    def __enter__(self) -> "Pairs":
        try:
            self._start()
        except BaseException:
            self._exit.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def _start(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="paceline-"))
        self._exit.callback(shutil.rmtree, folder, ignore_errors=True)
        targets = {}
        for index, (name, flags) in enumerate(self._wanted.items()):
            self._progress(f"starting pair {name}")
            targets[name] = self._pair(folder, index, name, flags)
        for name, target in targets.items():
            address = target.bound(180.0)["grpc"]
            command = ["services.gateway", "--targets", address, "--tokenizer", self._model]
            command += ["--report-cached-tokens", "true"]
            self.addresses[name] = self._launch(f"{name}-gateway", command, folder).bound(60.0)["grpc"]

    def _pair(self, folder: Path, index: int, name: str, flags: Sequence[str]) -> ServiceProcess:
        own = folder / str(index)
        own.mkdir(mode=0o700)
        address = f"unix:{own}/d"
        drafter = ["services.drafter", "--model", self._drafter, "--grpc", address]
        target = ["services.target", "--model", self._model, "--drafter-model", self._drafter]
        target += ["--drafter-address", address, "--run-dir", str(own), "--pair-id", name]
        target += ["--slots", str(self._slots), *flags]
        self._launch(f"{name}-drafter", drafter, folder)
        return self._launch(f"{name}-target", target, folder)

    def _launch(self, name: str, command: Sequence[str], folder: Path) -> ServiceProcess:
        environment = {"OMP_NUM_THREADS": "1"} if "drafter" in name else {}
        process = ServiceProcess(name, command, folder, environment)
        self._exit.callback(process.stop)
        return process
