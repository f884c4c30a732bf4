"""Memory that each process of a pair holds on the GPU, told by what its end gives back."""

from __future__ import annotations

from typing import Any

import torch

from services.common.pb.paceline.v1 import target_pb2 as pb
from tests.bench.gpu.pair import ServedPair
from tests.bench.gpu.shapes import drafter_elements, target_elements

Row = dict[str, Any]
MIB = 1 << 20


def held_rows(pair: ServedPair) -> list[Row]:
    """Stops the drafter, then the target; one row for each. The arena is the target's."""
    description, shape = pair.describe(), pair.settings.shape
    both = _used_mib()
    pair.drafter.stop()
    alone = _used_mib()
    pair.target.stop()
    none = _used_mib()
    weights = 2 * drafter_elements(shape) / MIB
    return [
        {
            "step": "memory",
            "process": "drafter",
            "held_mib": round(both - alone),
            "weights_mib": round(weights),
            "beside_mib": round(both - alone - weights),
            "bar_beside_mib": 600,
        },
        {
            "step": "memory",
            "process": "target",
            "held_mib": round(alone - none),
            **_planned(pair, description, alone - none),
        },
    ]


def _planned(pair: ServedPair, description: pb.TargetServiceDescribeResponse, held: float) -> Row:
    """The budget speaks of what stands beside the weights, unless it counts them among what does not grow."""
    budget, weights = description.budget, 2 * target_elements(pair.settings.shape)
    planned = budget.total_bytes + (weights if budget.fixed_bytes < weights else 0)
    return {
        "held_mib": round(held),
        "weights_mib": round(weights / MIB),
        "budget_mib": round(budget.total_bytes / MIB),
        "held_to_planned": round(held * MIB / planned, 4),
        "bar": "0.98 to 1.02",
    }


def _used_mib() -> float:
    """Of the whole GPU, whoever holds it."""
    if not torch.cuda.is_available():
        return 0.0
    free, total = torch.cuda.mem_get_info()
    return (total - free) / MIB
