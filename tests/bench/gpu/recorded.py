"""What the target's flight recorder says of rounds that a client saw."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from services.common.pb.paceline.v1 import target_pb2 as pb
from tests.bench.gpu.load import Arrival


def records_of(description: pb.TargetServiceDescribeResponse, seen: Sequence[Arrival]) -> list[pb.RoundRecord]:
    """The records of these rounds, as far as the recorder still has them."""
    numbers = {arrival.number for arrival in seen}
    return [record for record in description.rounds if record.number in numbers]


def rounds_of(description: pb.TargetServiceDescribeResponse, seen: Sequence[Arrival], requests: int) -> dict[str, Any]:
    """Medians over the rounds in which all requests decoded and nothing was prefilled, as the target's host saw them.

    `steady_round_us` is the time between two of them at the client; `step_us` is from the launch of a round to its
    end, drafts and hand-off included where streams order them.
    """
    full = [record for record in records_of(description, seen) if record.requests == requests and not record.prefilled]
    gaps = [after.at - before.at for before, after in pairwise(seen)]
    return {
        "steady_round_us": round(statistics.median(gaps) * 1e6, 1) if gaps else None,
        "step_us": statistics.median(record.verify_us for record in full) if full else None,
        "draft_wait_us": statistics.median(record.draft_us for record in full) if full else None,
        "host_us": statistics.median(record.host_us for record in full) if full else None,
        "fallbacks": sum(record.fallback != "" for record in full),
    }
