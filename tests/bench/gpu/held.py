"""Memory that each process of a pair holds on the GPU, told by what its end gives back."""

from __future__ import annotations

from typing import Any

import torch

from tests.bench.gpu.pair import ServedPair
from tests.bench.gpu.shapes import drafter_elements, target_elements

Row = dict[str, Any]
MIB = 1 << 20


def held_rows(pair: ServedPair) -> list[Row]:
    """Stops the drafter, then the target; a row for each, and one of both against their budget."""
    budget, shape = pair.describe().budget, pair.settings.shape
    both = _used_mib()
    pair.drafter.stop()
    alone = _used_mib()
    pair.target.stop()
    none = _used_mib()
    drafter = _held("drafter", both - alone, 2 * drafter_elements(shape) / MIB)
    planned = budget.total_bytes / MIB
    return [
        {**drafter, "bar_beside_mib": 600},
        _held("target", alone - none, 2 * target_elements(shape) / MIB),
        {
            "step": "memory",
            "process": "both",
            "held_mib": round(both - none),
            "budget_mib": round(planned),
            "budget_fixed_mib": round(budget.fixed_bytes / MIB),
            "held_to_planned": round((both - none) / planned, 4),
            "bar": "0.98 to 1.02",
        },
    ]


def _held(process: str, held: float, weights: float) -> Row:
    return {
        "step": "memory",
        "process": process,
        "held_mib": round(held),
        "weights_mib": round(weights),
        "beside_mib": round(held - weights),
    }


def _used_mib() -> float:
    """Of the whole GPU, whoever holds it."""
    if not torch.cuda.is_available():
        return 0.0
    free, total = torch.cuda.mem_get_info()
    return (total - free) / MIB
