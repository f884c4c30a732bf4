"""The controller itself sees raylet and GCS end: by pidfd those that it started, by their port those of others."""

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.cluster import ray_watch
from tests.support.pace import within_s
from tests.support.ports import free_ports

WAIT_S = 30.0


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Stand-ins with the names of Ray's processes, children of this one."""
    made = {}
    for name in ray_watch.OWN:
        program = shutil.copy(shutil.which("sleep") or "sleep", tmp_path / name)
        made[name] = subprocess.Popen([program, "60"])
    yield made
    for process in made.values():
        process.kill()
        process.wait()


@pytest.mark.parametrize(("killed", "told"), ray_watch.OWN.items())
async def test_a_process_of_ours_that_ends_is_told_at_once(
    processes: dict[str, subprocess.Popen[bytes]], killed: str, told: str
) -> None:
    bound_s = within_s(4 * ray_watch.LOOK_S + 2.0)
    watching = asyncio.create_task(ray_watch.until_lost(joined=False))
    await asyncio.sleep(2 * ray_watch.LOOK_S)
    assert not watching.done()
    processes[killed].kill()
    async with asyncio.timeout(bound_s):
        assert await watching == told


async def test_a_port_that_refuses_three_times_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    own = dict(zip("ab", free_ports(2), strict=True))  # nobody else listens at one that its server left
    ports = {name: f"127.0.0.1:{port}" for name, port in own.items()}
    servers = {
        name: await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port)
        for name, port in own.items()
    }
    monkeypatch.setattr(ray_watch, "_addresses", lambda: ports)
    monkeypatch.setattr(ray_watch, "AGAIN_S", 0.02)
    watching = asyncio.create_task(ray_watch.until_lost(joined=True))
    await asyncio.sleep(0.2)
    assert not watching.done()
    servers["b"].close()
    async with asyncio.timeout(WAIT_S):
        assert await watching == "b"
    servers["a"].close()
