"""Worker processes: single-threaded on a busy CPU, they meet once a step instead of once an operation."""

import multiprocessing
import os
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from models.training.settings import Settings

Stage = Callable[[Settings], None]


def run_stage(stage: Stage, settings: Settings) -> None:
    """Run a stage in `settings.workers` processes that average their gradients."""
    store = settings.work.absolute() / "workers"
    store.unlink(missing_ok=True)
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_work, args=(stage, settings, rank, str(store))) for rank in range(settings.workers)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        raise RuntimeError("a training worker failed")


def rank() -> int:
    """Return this process's number; 0 saves and reports."""
    return dist.get_rank() if dist.is_initialized() else 0


def average(weights: Sequence[Tensor], progress: float) -> float:
    """Average the gradients over the workers, and their progress, so that all stop together."""
    if not dist.is_initialized():
        return progress
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    flat = torch.cat([*(gradient.flatten() for gradient in gradients), torch.tensor([progress])])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    *parts, last = torch.split(flat, [*(gradient.numel() for gradient in gradients), 1])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))
    return last.item()


def _work(stage: Stage, settings: Settings, number: int, store: str) -> None:
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // settings.workers))
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=number, world_size=settings.workers)
    stage(settings)
    dist.barrier()
    dist.destroy_process_group()
