"""Load with faults for a long time: `python -m tests.bench.soak --minutes 30 --warm-minutes 10`.

Two pairs of the made-up model behind a gateway. Every cycle runs the same requests and compares their text with that of
a run without speculation and without faults, while something happens: nothing, a killed drafter, a killed or stopped
target, or cancelled streams. When all is quiet again nothing may be held, and every process is measured. The last line
is JSON; it exits with 1 when a text differed or, after the warm-up, a process kept memory or descriptors or the
acceptance moved. A token or block not accounted for ends the run.
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

from tests.bench.drift import Drift
from tests.faults.answers import Answer, request, same
from tests.faults.fleet import Fleet, running_fleet
from tests.faults.rest import Footprint, footprint

FAULTS = ("none", "drafter", "target", "stop", "cancel")


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
        self.drift = Drift()

    async def run(self, minutes: float, warm_minutes: float) -> None:
        """Cycles until the time is over; at least one."""
        self._expected = await self._fleet.expected(self._streams, self._tokens)
        began = time.monotonic()
        while True:
            fault = self._random.choice(FAULTS)
            accepted, drafted = await self._cycle(fault)
            if time.monotonic() >= began + 60 * warm_minutes:
                # A target that dies takes the count of its rejected drafts with it.
                known = fault not in ("target", "stop") and drafted > 0
                self.drift.add(self._samples(), accepted / drafted if known else None)
            if time.monotonic() >= began + 60 * (minutes + warm_minutes):
                return

    async def _cycle(self, fault: str) -> tuple[int, int]:
        """One round of requests under a fault; drafts accepted and made."""
        streams = await self._fleet.begin_all(self._streams, self._tokens)
        await self._strike(fault, self._random.randrange(len(self._fleet.pairs)))
        answers = [await stream.task for stream in streams]
        self.mismatches += sum(not same(*pair) for pair in zip(answers, self._expected, strict=True))
        await self._mend()
        await self._fleet.released()
        self.requests += self._streams
        self.faults[fault] += 1
        counts = [answer.final.speculation for answer in answers if answer.final is not None]
        return sum(one.accepted for one in counts), sum(one.drafted for one in counts)

    async def _strike(self, fault: str, index: int) -> None:
        pair = self._fleet.pairs[index]
        if fault == "drafter":
            await asyncio.to_thread(pair.kill_drafter, len(pair.drafters) - 1)
            pair.turn_to(pair.add_drafter())
        elif fault in ("target", "stop"):
            pair.target.process.send_signal(signal.SIGKILL if fault == "target" else signal.SIGSTOP)
        elif fault == "cancel":
            asked = [request(number, self._tokens) for number in range(self._streams)]
            places = [self._random.randrange(1, self._tokens) for _ in asked]
            await asyncio.gather(*(self._fleet.ask(one, cancel_at=at) for one, at in zip(asked, places, strict=True)))

    async def _mend(self) -> None:
        for index, pair in self._fleet.pairs.items():
            if pair.target.process.poll() is not None or stopped(pair.target.process.pid):
                await self._fleet.replace_pair(index)

    def _samples(self) -> dict[int, Footprint]:
        pids = [self._fleet.gateway.process.pid]
        for pair in self._fleet.pairs.values():
            pids += [pair.target.process.pid, pair.drafter.process.pid]
        return {pid: footprint(pid) for pid in pids}

    def report(self) -> dict[str, object]:
        """What happened."""
        found = self.drift.report()
        return {
            "name": "soak",
            "cycles": sum(self.faults.values()),
            "requests": self.requests,
            "mismatches": self.mismatches,
            "faults": dict(self.faults),
            **found,
            "ok": self.mismatches == 0 and bool(found["steady"]),
        }


def stopped(pid: int) -> bool:
    """Whether a signal holds the process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line for line in lines if line.startswith("State:")).split()[1] == "T"


async def soak(minutes: float, warm_minutes: float, streams: int, tokens: int, seed: int) -> dict[str, object]:
    """Runs on a fleet of two pairs."""
    async with running_fleet(2, ("--slots", "16"), alike=True) as fleet:
        made = Soak(fleet, streams, tokens, seed)
        await made.run(minutes, warm_minutes)
        return made.report()


def main() -> int:
    """Prints the report; 1 when something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.soak")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--warm-minutes", type=float, default=10.0)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    report = asyncio.run(soak(chosen.minutes, chosen.warm_minutes, chosen.streams, chosen.tokens, chosen.seed))
    print(json.dumps(report))
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
