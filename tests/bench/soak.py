"""Load with faults for a long time: `python -m tests.bench.soak --minutes 60`.

Two pairs of the made-up model behind a gateway. Every cycle runs the same requests and compares their text with that of
a run without speculation and without faults, while something happens: nothing, a killed drafter, a killed target, or
cancelled streams. Memory is read when all is quiet again. The last line is JSON; it exits with 1 when a text differed
or memory grew by more than a tenth from the tenth cycle on. A token not accounted for ends the run.
"""

import argparse
import asyncio
import json
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from tests.faults.fleet import Answer, Fleet, request, running_fleet, same

FAULTS = ("none", "drafter", "target", "cancel")
SETTLED_CYCLES = 10
ALLOWED_GROWTH = 1.1


class Soak:
    """Cycles on one fleet."""

    def __init__(self, fleet: Fleet, streams: int, tokens: int, seed: int) -> None:
        """Chooses faults by the seed."""
        self._fleet = fleet
        self._streams = streams
        self._tokens = tokens
        self._random = random.Random(seed)
        self._expected: list[Answer] = []
        self.faults: Counter[str] = Counter()
        self.requests = 0
        self.mismatches = 0
        self.gateway_kib: list[int] = []

    async def run(self, minutes: float) -> None:
        """Cycles until the time is over; at least one."""
        self._expected = await self._fleet.expected(self._streams, self._tokens)
        end = time.monotonic() + 60 * minutes
        while True:
            await self._cycle(self._random.choice(FAULTS))
            if time.monotonic() >= end:
                return

    async def _cycle(self, fault: str) -> None:
        streams = await self._fleet.begin_all(self._streams, self._tokens)
        await self._strike(fault, self._random.randrange(len(self._fleet.pairs)))
        for stream, wanted in zip(streams, self._expected, strict=True):
            self.mismatches += not same(await stream.task, wanted)
        await self._mend()
        await self._fleet.quiet()
        self.requests += self._streams
        self.faults[fault] += 1
        self.gateway_kib.append(resident_kib(self._fleet.gateway.process.pid))

    async def _strike(self, fault: str, index: int) -> None:
        pair = self._fleet.pairs[index]
        if fault == "drafter":
            await asyncio.to_thread(pair.kill_drafter, len(pair.drafters) - 1)
            pair.turn_to(pair.add_drafter())
        elif fault == "target":
            pair.target.process.send_signal(signal.SIGKILL)
        elif fault == "cancel":
            asked = [request(number, self._tokens) for number in range(self._streams)]
            places = [self._random.randrange(1, self._tokens) for _ in asked]
            await asyncio.gather(*(self._fleet.ask(one, cancel_at=at) for one, at in zip(asked, places, strict=True)))

    async def _mend(self) -> None:
        for index, pair in self._fleet.pairs.items():
            if pair.target.process.poll() is not None:
                await self._fleet.replace_pair(index)

    def report(self) -> dict[str, object]:
        """What happened."""
        settled = self.gateway_kib[SETTLED_CYCLES:]
        grown = max(settled) / settled[0] if settled else 1.0
        return {
            "name": "soak",
            "cycles": sum(self.faults.values()),
            "requests": self.requests,
            "mismatches": self.mismatches,
            "faults": dict(self.faults),
            "gateway_growth": round(grown, 3),
            "ok": self.mismatches == 0 and grown <= ALLOWED_GROWTH,
        }


def resident_kib(pid: int) -> int:
    """Resident memory of a process in KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


async def soak(minutes: float, streams: int, tokens: int, seed: int) -> dict[str, object]:
    """Runs on a fleet of two pairs."""
    async with running_fleet(2) as fleet:
        made = Soak(fleet, streams, tokens, seed)
        await made.run(minutes)
        return made.report()


def main() -> int:
    """Prints the report; 1 when something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.soak")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    report = asyncio.run(soak(chosen.minutes, chosen.streams, chosen.tokens, chosen.seed))
    print(json.dumps(report))
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
