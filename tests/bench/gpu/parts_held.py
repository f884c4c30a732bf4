"""What a target's process holds on a GPU, part by part, beside the parts that its plan names."""

from __future__ import annotations

import torch

from services.target.build_device import Worker
from tests.gpu.memory import used_bytes

_MB = 1_000_000


def told(worker: Worker, opened_bytes: int) -> str:
    """Return both lists, megabytes; the GPU had `opened_bytes` in use before the target was built.

    Captured steps and other tensors lie in pools of their own; what neither pool nor arena holds is the driver's:
    compiled kernels, captured launches and the workspaces of libraries.
    """
    reserved, graphs = torch.cuda.memory_reserved(), worker.capture_cost.held_bytes
    arena = sum(worker.arena.layout().segments)
    held = {
        "before": opened_bytes,
        "tensors": torch.cuda.memory_allocated(),
        "between tensors": reserved - torch.cuda.memory_allocated() - graphs,
        "between kernels of steps": graphs,
        "arena": arena,
        "driver": used_bytes() - opened_bytes - reserved - arena,
        "tensors of states": sum(tensor.nbytes for tensor in worker.runner.pool.states.tensors),
        "logits": 0 if (room := worker.runner.pool.logits_TV) is None else room.nbytes,
        "captures": worker.graphs.captures,
    }
    budget = worker.budget
    terms = {
        **budget.terms.fixed,
        **{f"{name} of {budget.slots} slots": budget.slots * size for name, size in budget.terms.per_slot.items()},
        **{
            f"{name} of blocks": (budget.blocks + 1) * budget.block_size * size
            for name, size in budget.terms.per_token.items()
        },
    }
    return f"planned, MB: {_listed(terms)}\nheld, MB: {_listed(held)}"


def _listed(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name} {size if name == 'captures' else round(size / _MB, 1)}" for name, size in sizes.items())
