"""python -m tests.bench.gpu.race --group 1,8 --vllm FOLDER: a group of the race, merged into the result of its date.

A group is run whole on one machine in one go: paceline, vLLM at each K and without drafts, paceline again. `make
pictures` then makes the pages' tables and plot of it.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from tests.bench.gpu.race.group import Group
from tests.bench.gpu.race.merge import Result, add
from tests.bench.gpu.race.meter import Meter, gpu_names
from tests.bench.gpu.race.ours import paceline_leg
from tests.bench.gpu.race.plan import GROUPS, PACELINE, SCHEDULES, SLOTS, VLLM, plan, requests_of
from tests.bench.gpu.race.theirs import VllmOptions, vllm_leg
from tests.bench.gpu.rig import RigSettings
from tests.bench.gpu.shapes import QWEN3_4B
from tests.bench.race import RESULTS, table

WIDTHS, CONTEXT = (1, 4, 6, 8, 12, 16), 2048


def main() -> int:
    """Runs the groups that were asked for."""
    chosen = _arguments()
    memory = int(chosen.memory_gb * (1 << 30))
    settings = RigSettings(QWEN3_4B, "cuda", "bfloat16", SLOTS, WIDTHS, CONTEXT, memory)
    options = VllmOptions(Path(chosen.vllm).resolve(), chosen.vllm_python, chosen.vllm_memory)
    for group in [chosen.group] if chosen.group else GROUPS:
        legs = plan(group, chosen.profiles, not chosen.without_fixed, chosen.drafts)
        with Meter(chosen.gpu) as meter:
            sides = {
                PACELINE: lambda leg: (_commit(), paceline_leg(leg, settings, chosen.drafter_weights)),
                VLLM: lambda leg: vllm_leg(leg, settings, options),
            }
            done = Group(legs, sides)
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        path = add(Path(chosen.save), today, _result(group, done, meter, chosen))
        print(f"{path}\n{table(done.rows(meter.samples))}")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--group", help="requests at once, as 1,8; without it 1,8 and 32 and 64,128, one by one")
    parser.add_argument(
        "--drafts", type=int, nargs="*", default=(), help="the only K to try; all of each load's without"
    )
    parser.add_argument("--vllm", required=True, help="folder with vLLM's packages, which PYTHONPATH is set to")
    parser.add_argument("--vllm-python", default=sys.executable, help="what runs them")
    parser.add_argument("--vllm-memory", type=float, default=0.6, help="its share of the GPU's memory")
    parser.add_argument("--memory-gb", type=float, default=56.0, help="of paceline's pair, weights included")
    parser.add_argument("--drafter-weights", choices=["dtype", "int8"], default="dtype", help="of paceline's drafter")
    parser.add_argument("--profiles", nargs="*", choices=sorted(SCHEDULES), default=["P65"], help="of acceptance")
    parser.add_argument("--without-fixed", action="store_true", help="leave out paceline at fixed K")
    parser.add_argument("--gpu", default="0", help="index or UUID, for nvidia-smi")
    parser.add_argument("--save", default=str(RESULTS), help="folder of results")
    chosen = parser.parse_args()
    if not chosen.vllm or not Path(chosen.vllm).is_dir():
        parser.error(f"--vllm (VLLM= of make race): {chosen.vllm!r} is no folder")
    try:
        requests_of(chosen.group or GROUPS[0])
    except ValueError as error:
        parser.error(f"--group: {error}")
    if shutil.which("nvidia-smi") is None:
        parser.error("there is no nvidia-smi here: the race needs an NVIDIA GPU")
    return chosen


def _result(group: str, done: Group, meter: Meter, chosen: argparse.Namespace) -> Result:
    device, uuid = gpu_names(chosen.gpu)
    facts = {
        "gpu": uuid,
        "drafter_weights": chosen.drafter_weights,
        "unsteady": done.marks(),
        "throttle_reasons": done.reasons(meter.samples),
    }
    return {
        "bench": "race",
        "device": device,
        "commit": _commit(),
        "versions": {VLLM: done.versions[VLLM], **{name: metadata.version(name) for name in ("torch", "triton")}},
        "command": "python -m tests.bench.gpu.race " + " ".join(sys.argv[1:]),
        "groups": {group: facts},
        "rows": done.rows(meter.samples),
    }


def _commit() -> str:
    told = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return os.environ.get("BENCH_COMMIT", told.stdout.strip())


if __name__ == "__main__":
    sys.exit(main())
