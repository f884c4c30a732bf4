"""`python -m tests.mutants`: injects each seeded bug and reports which test killed it; one JSON line last.

The killing tests must pass without a bug first. A mutant counts as killed only when its test fails; a test that cannot
be collected, or source text that has moved on, is reported as broken.
"""

import json
import os
import subprocess
import sys
import time

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutation import Mutant, interpreted
from tests.mutants.one import QUIET
from tests.support.interpreter import INTERPRETED

FAILED = 1
LIMIT_S = 300
"""For one test; what takes longer hangs."""
TIMED_OUT = -1


def main(names: list[str]) -> int:
    """Runs all mutants, or those named; returns 0 when all were killed."""
    start = time.monotonic()
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    tests = sorted({mutant.killed_by for mutant in chosen})
    kinds = [[test for test in tests if interpreted(test) == by_interpreter] for by_interpreter in (False, True)]
    green = all(_status([sys.executable, "-m", "pytest", *QUIET, *kind], kind) == 0 for kind in kinds if kind)
    verdicts = {mutant.name: _verdict(mutant) for mutant in chosen}
    survived = [name for name, verdict in verdicts.items() if verdict != "killed"]
    report = {
        "name": "test-mutants",
        "passed": len(chosen) - len(survived),
        "failed": len(survived) + (not green),
        "skipped": 0,
        "seed": 0,
        "unmutated_green": green,
        "mutants": len(chosen),
        "survived": {name: verdicts[name] for name in survived},
        "killed_by": {mutant.name: mutant.killed_by for mutant in chosen if verdicts[mutant.name] == "killed"},
        "seconds": round(time.monotonic() - start, 1),
    }
    print(json.dumps(report))
    return 0 if green and not survived else 1


def _verdict(mutant: Mutant) -> str:
    status = _status([sys.executable, "-m", "tests.mutants.one", mutant.name], [mutant.killed_by])
    known = {FAILED: "killed", 0: "survived", TIMED_OUT: f"broken (not done in {LIMIT_S} s)"}
    verdict = known.get(status, f"broken (exit status {status})")
    print(f"{verdict:10} {mutant.name}", file=sys.stderr, flush=True)
    return verdict


def _status(command: list[str], tests: list[str]) -> int:
    """Exit status of a command that runs these tests, all of them with kernels interpreted or none."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | (INTERPRETED if interpreted(tests[0]) else {})
    limit_s = LIMIT_S * len(tests)
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return TIMED_OUT
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
