"""How much each kernel of a replay adds to it: kernels that start early wait, so that their own times overlap."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

_NAME = 60


class Ran(NamedTuple):
    """A kernel that ran, microseconds."""

    name: str
    start: float
    end: float


class Added(NamedTuple):
    """A kernel, how long it ran, and by how much later than all before it it ended."""

    name: str
    ran: float
    added: float


def kernels_of(replay: Callable[[], object], repeats: int = 10) -> str:
    """Return a line for each kernel: how often a replay launches it, microseconds that one runs, and that all add.

    Behind them stand the kernels of the last replay in order, with what each adds.
    """
    return table(_traced(replay, repeats), repeats)


def added_by(replay: Callable[[], object], before: int = 20) -> list[Added]:
    """Return the kernels of a replay in order, with what each adds, behind some others that set clocks and power."""
    for _ in range(before):
        replay()
    return added(_traced(replay, 1))


def places(rows: Sequence[Added], layers: int) -> list[str]:
    """Return microseconds that one replay's kernels add, by name and place among those of a name in a layer."""
    counts, seen = Counter(row.name for row in rows), Counter[str]()
    sums: defaultdict[str, list[float]] = defaultdict(list)
    for row in rows:
        in_layer, at = counts[row.name] // layers, seen[row.name]
        seen[row.name] += 1
        place = f"{1 + at % in_layer} of {in_layer}" if at < in_layer * layers else "beside"
        sums[f"{place:>8}  {row.name[:_NAME]}"].append(row.added)
    ordered = sorted(sums.items(), key=lambda item: -sum(item[1]))
    return [f"{sum(own):9.1f} us, {len(own):>3} x {sum(own) / len(own):7.2f}  {name}" for name, own in ordered]


def _traced(replay: Callable[[], object], repeats: int) -> list[Ran]:
    from torch.profiler import ProfilerActivity, profile

    replay()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(repeats):
            replay()
        torch.cuda.synchronize()
    return [
        Ran(event.name, event.time_range.start, event.time_range.end)
        for event in found.events()
        if event.device_type.name == "CUDA"
    ]


def added(ran: Sequence[Ran]) -> list[Added]:
    """Return kernels by their ends; what they add is all of the time from the first start to the last end."""
    ordered, rows = sorted(ran, key=lambda one: one.end), list[Added]()
    before = min((one.start for one in ran), default=0.0)
    for one in ordered:
        rows.append(Added(one.name, one.end - one.start, one.end - before))
        before = one.end
    return rows


def table(ran: Sequence[Ran], repeats: int) -> str:
    """Return the lines of `kernels_of`, those that add most first."""
    rows, by_name = added(ran), defaultdict[str, list[Added]](list)
    for row in rows:
        by_name[row.name].append(row)
    sums = sorted(by_name.items(), key=lambda item: -sum(row.added for row in item[1]))
    lines = [
        f"{len(own) / repeats:7.1f} x {sum(row.ran for row in own) / len(own):7.2f} us, adds "
        f"{sum(row.added for row in own) / repeats:8.1f}  {name[:_NAME]}"
        for name, own in sums
    ]
    last = rows[-(len(rows) // repeats) :]
    return "\n".join((*lines, "in order: " + ", ".join(f"{row.name[:20]} {row.added:.1f}" for row in last)))
