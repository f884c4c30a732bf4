"""python -m tests.bench.gpu.race --group 1,8 --vllm FOLDER: a group of the race, merged into the result of its date.

A group is run whole on one machine in one go: paceline, each peer at each K and without drafts, paceline again. `make
pictures` then makes the pages' tables and plot of it. `--plan` prints what would run, and for how many seconds.
"""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from tests.bench.gpu.race.arguments import arguments
from tests.bench.gpu.race.estimate import saved_rows, told
from tests.bench.gpu.race.group import Group, Side
from tests.bench.gpu.race.merge import Result, add, text_of
from tests.bench.gpu.race.meter import Meter, NoMeter, gpu_names
from tests.bench.gpu.race.ours import paceline_leg
from tests.bench.gpu.race.plan import GROUPS, PACELINE, PARTS, SGLANG, VLLM, Choice, Leg, plan
from tests.bench.gpu.race.rows import Drafter
from tests.bench.gpu.race.scale import FULL_SCALE, TINY_SCALE, Scale
from tests.bench.gpu.race.theirs import PeerOptions, peer_leg
from tests.bench.gpu.shapes import named, raced
from tests.bench.race import RESULTS, latencies, table


def main() -> int:
    """Runs the groups that were asked for, or says what would run."""
    chosen = arguments(__doc__ or "")
    shape, family, changes = raced(chosen.shape, chosen.weights, chosen.tiny)
    scale = replace(TINY_SCALE if chosen.tiny else FULL_SCALE, shape=shape)
    settings = replace(scale.settings(chosen.memory_gb), family=family, changes=changes)
    drafter = Drafter(chosen.drafter_weights, chosen.short_blocks)
    flags = ["--prefer", chosen.prefer, *chosen.flags.split()]
    peers = {
        peer: PeerOptions(Path(folder).resolve(), chosen.vllm_python, chosen.vllm_memory)
        for peer, folder in _folders(chosen).items()
    }
    for group in [chosen.group] if chosen.group else GROUPS:
        legs = plan(_choice(group, chosen, scale))
        if chosen.plan:
            print(f"group {group}\n{told(legs, saved_rows(RESULTS, named(chosen.shape, chosen.weights)))}")
            continue
        sides: dict[str, Side] = {
            PACELINE: lambda leg: (_commit(), paceline_leg(leg, settings, drafter, flags)),
            **dict.fromkeys(peers, lambda leg: peer_leg(leg, settings, peers[leg.side])),
        }
        result = _run(group, legs, sides, chosen, scale)
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        path = add(Path(chosen.save), today, result)
        tables = "\n".join(table(result["rows"], peer) for peer in peers)
        print(f"{path}\n{tables}\n{latencies([*result['rows'], *result['closed']])}")
    return 0


def _folders(chosen: argparse.Namespace) -> dict[str, str]:
    """Of the peers that take part; a plan without any is vLLM's."""
    given = {peer: folder for peer, folder in ((VLLM, chosen.vllm), (SGLANG, chosen.sglang)) if folder}
    return given or {VLLM: ""}


def _run(
    group: str, legs: Sequence[Leg], sides: Mapping[str, Side], chosen: argparse.Namespace, scale: Scale
) -> Result:
    """What a group has measured; until the last leg it is kept in a file, should the machine be taken away."""
    Path(chosen.save).mkdir(parents=True, exist_ok=True)
    file = Path(chosen.save) / f"unfinished_race_{group.replace(',', '_')}.json"
    with Meter(chosen.gpu) if scale.on_gpu else NoMeter() as meter:

        def keep(so_far: Group) -> None:
            print("{}: {} s".format(*so_far.seconds[-1]), file=sys.stderr, flush=True)
            file.write_text(text_of(_result(group, so_far, meter, chosen, scale)))

        done = Group(legs, sides, keep)
    file.unlink()
    return _result(group, done, meter, chosen, scale)


def _choice(group: str, chosen: argparse.Namespace, scale: Scale) -> Choice:
    closed_s = min(chosen.closed, scale.closed_s)
    return Choice(group, chosen.profiles, not chosen.without_fixed, chosen.drafts, chosen.parts, closed_s, chosen.once,
                  scale.outs if chosen.tiny else chosen.outs, tuple(_folders(chosen)))  # fmt: skip


def _result(group: str, done: Group, meter: Meter | NoMeter, chosen: argparse.Namespace, scale: Scale) -> Result:
    device, uuid = gpu_names(chosen.gpu) if scale.on_gpu else ("CPU", "")
    ours = {name: metadata.version(name) for name in ("torch", "triton")}
    theirs = {peer: version for peer, version in done.versions.items() if peer != PACELINE}
    drafter, shape = Drafter(chosen.drafter_weights, chosen.short_blocks), named(chosen.shape, chosen.weights)
    facts = {
        "ended": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "gpu": uuid,
        "drafter_weights": drafter.weights,
        "short_blocks": drafter.short_blocks,
        "seconds": done.seconds,
        "unsteady": done.marks(),
        "throttle_reasons": done.reasons(meter.samples),
    }
    return {
        "bench": "race",
        "device": device,
        "commit": _commit(),
        "versions": theirs | ours,
        "command": "python -m tests.bench.gpu.race " + " ".join(sys.argv[1:]),
        "groups": {_name(group, chosen): facts},
        "rows": [row | {"shape": shape} for row in done.rows(meter.samples, drafter)],
        "closed": [row | {"shape": shape} for row in done.rows(meter.samples, drafter, closed=True)],
    }


def _name(group: str, chosen: argparse.Namespace) -> str:
    """Of a group in the result: parts of it may be run apart."""
    return group if set(chosen.parts) == set(PARTS) else f"{group} {' '.join(chosen.parts)}"


def _commit() -> str:
    told = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return os.environ.get("BENCH_COMMIT", told.stdout.strip())


if __name__ == "__main__":
    sys.exit(main())
