"""A pair as two processes with the real hand-off and random weights, whose schedule of acceptance can be changed."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from deploy.stack import ServiceProcess
from services.common.pb.paceline.v1 import target_pb2 as pb
from services.common.pb.paceline.v1 import target_pb2_grpc as rpc
from services.common.request.limits import PROTOCOL_VERSION
from services.common.serving.channel import connect_sync
from tests.bench.gpu.pinned import VARIABLE
from tests.bench.gpu.rig import RigSettings
from tests.bench.gpu.scattered import VARIABLE as ROUTES
from tests.bench.gpu.shapes import VLLM
from tests.support.tiny_checkpoints import TinyPair, write_configs

READY_S = 420.0


@dataclass(frozen=True, slots=True)
class PairOptions:
    """How two processes are started; with `short_blocks` a draft's block is as wide as the round.

    `flags` are further ones of the target. `drafter_weights` is the drafter's type of weights, which the target's
    memory plan has to know. `target` and `drafter` are the modules that run. With `synthetic` acceptance rows cannot be
    compared between shapes. With `routes` of `scattered.py` that drafter runs, and rows choose experts accordingly.
    """

    handoff: str = "auto"
    environment: Mapping[str, str] = field(default_factory=dict)
    short_blocks: bool = False
    drafter_weights: str = "dtype"
    flags: tuple[str, ...] = ()
    drafter_flags: tuple[str, ...] = ()
    target: str = "tests.bench.gpu.pinned"
    drafter: str = "services.drafter"
    synthetic: bool = True
    routes: str = "own"

    @property
    def drafter_module(self) -> str:
        """The module of the drafter's process."""
        return self.drafter if self.routes == "own" else "tests.bench.gpu.scattered"


class ServedPair:
    """Both processes; a context manager that stops them at the end. `captured` counts the graphs of warm-up."""

    def __init__(self, settings: RigSettings, folder: Path, options: PairOptions) -> None:
        """Starts them."""
        self.settings, self.options, self._folder = settings, options, folder
        self.pair = write_configs(folder / "models", settings.shape, settings.family, settings.changes)
        self._schedule = folder / "schedule"
        self.switch("vllm")
        environment = {**options.environment, VARIABLE: str(self._schedule), ROUTES: options.routes}
        drafter = self._drafter_command(self.pair, options)
        self.drafter = ServiceProcess("drafter", drafter, folder, environment)
        self.target = ServiceProcess("target", self._target_command(self.pair, options), folder, environment)
        self.address = f"unix:{folder}/t.sock"
        self.captured = 0

    def __enter__(self) -> ServedPair:
        try:
            self.captured = self.wait_ready().graphs.captures
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def switch(self, schedule: str) -> None:
        """Names the schedule of acceptance from the next request on."""
        self._schedule.write_text(json.dumps(schedule))

    def wait_ready(self) -> pb.TargetServiceDescribeResponse:
        """Waits for the attachment; returns the target's own description."""
        self.target.bound(READY_S)
        end = time.monotonic() + READY_S
        while time.monotonic() < end:
            self.target.check()
            self.drafter.check()
            description = self.try_describe()
            if description is not None and description.attachment == "attached":
                return description
            time.sleep(0.2)
        raise TimeoutError(f"no attachment\n{self.target.tail()}\n{self.drafter.tail()}")

    def try_describe(self) -> pb.TargetServiceDescribeResponse | None:
        """The target's description; None while it does not answer."""
        try:
            with connect_sync(self.address) as channel:
                request = pb.TargetServiceDescribeRequest(protocol_version=PROTOCOL_VERSION)
                response: pb.TargetServiceDescribeResponse = rpc.TargetServiceStub(channel).Describe(request, timeout=5)
                return response
        except grpc.RpcError:
            return None

    def describe(self) -> pb.TargetServiceDescribeResponse:
        """The target's description."""
        description = self.try_describe()
        assert description is not None, f"the target is gone\n{self.target.tail()}"
        return description

    def stop(self) -> None:
        """Ends both."""
        for process in (self.target, self.drafter):
            process.stop()
            print(f"{process.name}: {process.tail(1500)}", file=sys.stderr)

    def _target_command(self, pair: TinyPair, options: PairOptions) -> list[str]:
        settings, folder = self.settings, self._folder
        command = [options.target, "--model", str(pair.target), "--drafter-model", str(pair.drafter)]
        command += ["--drafter-address", f"unix:{folder}/d.sock", "--run-dir", str(folder), "--adaptive", "true"]
        command += ["--handoff", options.handoff, "--slots", str(settings.slots), "--max-queued-tokens", "1000000"]
        command += ["--context-limit", str(settings.context_limit), "--memory-bytes", str(settings.memory_bytes)]
        command += ["--prefill-chunk", str(settings.prefill_chunk), "--grpc", f"unix:{folder}/t.sock"]
        command += ["--widths", ",".join(map(str, settings.widths)), "--drafter-weights", options.drafter_weights]
        command += [*self._common(), *options.flags]
        if options.synthetic:
            command += ["--synthetic-acceptance", ",".join(map(str, VLLM[16]))]
        return command

    def _drafter_command(self, pair: TinyPair, options: PairOptions) -> list[str]:
        command = [options.drafter_module, "--model", str(pair.drafter), "--grpc", f"unix:{self._folder}/d.sock"]
        command += ["--short-blocks", str(options.short_blocks).lower(), "--weights", options.drafter_weights]
        return [*command, *self._common(), *options.drafter_flags]

    def _common(self) -> list[str]:
        settings = self.settings
        return ["--device", settings.device, "--dtype", settings.dtype, "--random-weights", "true"]
