"""Every pod of a release is replaced under load, one after another, and no stream fails."""

import asyncio
import signal
from collections.abc import Callable

import pytest

from tests.deploy.full.load import Received, drive_until
from tests.deploy.full.release import READY_S, Release, running, wait_routed

EXIT_S = 60.0
BETWEEN_S = 2.0


def replace(release: Release, pod: str) -> int:
    """Ends a pod as Kubernetes does, starts it again and waits until it is in use; returns the exit code."""
    process = release.processes[pod].process
    process.send_signal(signal.SIGTERM)
    code = process.wait(EXIT_S)
    release.start(pod)
    release.processes[pod].bound(READY_S)
    wait_routed(release)
    return code


async def rolled(release: Release, seed: int) -> tuple[Received, list[int]]:
    """Streams run while every pod is replaced; returns what clients received, and the exit codes."""
    done = asyncio.Event()
    load = asyncio.create_task(drive_until(release.addresses("gateway", 0), done, seed=seed, tokens=96))
    codes = []
    for pod in release.pods:
        await asyncio.sleep(BETWEEN_S)
        codes.append(await asyncio.to_thread(replace, release, pod))
    await asyncio.sleep(BETWEEN_S)
    done.set()
    return await load, codes


@pytest.mark.timeout(600)
def test_no_stream_fails_while_every_pod_is_replaced(seed: int, report_counts: Callable[[str, int], None]) -> None:
    print(f"seed {seed}")
    with running(workers=2, gateways=2) as release:
        received, codes = asyncio.run(rolled(release, seed))
    assert codes == [0] * 4
    assert received.statuses.keys() == {"OK"}
    assert received.statuses["OK"] >= 50
    report_counts("rolling_restart_streams", received.statuses["OK"])
