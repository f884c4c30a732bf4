"""A controller whose Ray loses a process ends at once, says so in one line, and takes along what it has started."""

import json
import os
import signal
import tempfile
from pathlib import Path

from deploy.stack import EMBEDDED, ServiceProcess
from services.common.serving.process import name_of
from tests.integration.deploy.test_stack import members, processes_naming

BOUND_S, ENDED_S = 110.0, 30.0


def test_a_controller_without_raylet_ends_with_one_line_and_leaves_nothing() -> None:
    # Short, because Ray's sockets lie below it.
    with tempfile.TemporaryDirectory(prefix="pl-", ignore_cleanup_errors=True) as name:
        flags = ["--model", str(EMBEDDED / "target"), "--proposer", "none", "--run-dir", f"{name}/c"]
        controller = ServiceProcess("cluster", ["deploy.cluster", *flags], Path(name), {})
        try:
            controller.bound(BOUND_S)
            (raylet,) = (pid for pid in members(controller.process.pid) if name_of(pid) == "raylet")
            os.kill(raylet, signal.SIGKILL)
            assert controller.process.wait(ENDED_S) == 1
            lines = [json.loads(line) for line in controller.log.read_text().splitlines()]
            assert [line["message"] for line in lines if line["level"] in ("error", "critical")] == [
                "raylet of Ray has ended: the controller ends, and its pairs with it"
            ]
            assert not processes_naming(name)
        finally:
            controller.stop(0.0)
