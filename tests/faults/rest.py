"""What must hold of processes when no request is left: nothing held, nothing kept, nothing logged as a defect."""

from __future__ import annotations

import contextlib
import os
import re
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import grpc

from tests.integration.pair import PairProcesses

KEPT_DESCRIPTORS = 3
"""A client's connection that its gRPC keeps once it was closed: its own, and two of the way behind a front."""

KEPT_SHARE = 0.05
KEPT_KIB = 16 * 1024
"""What a process may keep of a test: the share, or so much where a small process first does what it has not done."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a process holds of the machine; memory is its own, for pages of the arena are its cache and come by use."""

    descriptors: int
    resident_kib: int


def footprint(pid: int) -> Footprint:
    """What it holds now."""
    status = Path(f"/proc/{pid}/status").read_text()
    resident = re.search(r"RssAnon:\s+(\d+) kB", status)
    assert resident is not None
    return Footprint(len(os.listdir(f"/proc/{pid}/fd")), int(resident[1]))


class Footprints:
    """Compares every process with what it held when it was first at rest."""

    def __init__(self) -> None:
        self._first: dict[int, Footprint] = {}
        self._last: dict[int, Footprint] = {}

    def __str__(self) -> str:
        return "; ".join(f"{pid} held {first}, holds {self._last[pid]}" for pid, first in self._first.items())

    def grown(self, pid: int) -> bool:
        """Whether it holds more than then."""
        now = footprint(pid)
        first = self._first.setdefault(pid, now)
        self._last[pid] = now
        allowed_kib = max(KEPT_SHARE * first.resident_kib, KEPT_KIB)
        return (
            now.descriptors > first.descriptors + KEPT_DESCRIPTORS
            or now.resident_kib > first.resident_kib + allowed_kib
        )


def at_rest(pair: PairProcesses) -> bool:
    """Nothing runs, waits or owns blocks; all blocks are there; every committed token was emitted or discarded."""
    gauges = scrape(pair.bound["metrics"])
    settled = gauges.get("paceline_emitted_tokens_total", 0) + gauges.get("paceline_discarded_tokens_total", 0)
    if gauges.get("paceline_committed_tokens_total") != settled:
        return False
    names = ("paceline_running_requests", "paceline_waiting_requests", "paceline_kv_blocks.owned")
    if any(gauges.get(name) != 0 for name in names):
        return False
    try:
        total = pair.describe().load.total_blocks
    except grpc.RpcError:  # behind an attack from this address the front gives places to the next that ask
        return False
    return gauges["paceline_kv_blocks.free"] + gauges["paceline_kv_blocks.cached"] == total


def defects_in(folder: Path) -> list[str]:
    """What services logged as defects of their own; no fault may bring one about."""
    lines = (line for log in folder.rglob("*.log") for line in log.read_text(errors="replace").splitlines())
    return [line for line in lines if "unexpected error" in line]


def processes_of(folder: Path) -> list[str]:
    """Command lines of processes that still run on this folder."""
    found = []
    # A glob that looks into folders fails where one of them vanishes.
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in found if f"{folder}/" in line]


def scrape(address: str) -> dict[str, float]:
    """Metrics summed over labels but kv_blocks, which is by state."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as page:
        lines = page.read().decode().splitlines()
    sums: dict[str, float] = {}
    for line in lines:
        if line.startswith("paceline_"):
            name, labels, value = re.match(r"(\w+)(\{.*\})? (\S+)", line).groups()  # type: ignore[union-attr]
            state = re.search(r'state="(\w+)"', labels or "")
            key = f"{name}.{state[1]}" if state else name
            sums[key] = sums.get(key, 0.0) + float(value)
    return sums
