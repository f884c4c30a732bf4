"""What a training loop tells: its loss, smoothed where it is computed, so that no step waits for the device."""

import time

import torch
from torch import Tensor

from models.training.workers import rank

SECONDS = 20.0
SHARE = 0.04
"""Of the newest loss in the smoothed one."""


class Journal:
    """One line now and then, and one at the end; worker 0 writes."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._loss: Tensor | None = None
        self._told = time.monotonic()

    def note(self, loss: Tensor, step: int, progress: float) -> None:
        """A step has been made."""
        loss = loss.detach().float()
        self._loss = loss if self._loss is None else self._loss.lerp(loss, SHARE)
        if time.monotonic() - self._told > SECONDS:
            self._write(f"step {step} progress {progress:.3f} loss {self._loss.item():.3f}")

    def close(self, step: int) -> None:
        """Training has ended."""
        loss = "none" if self._loss is None else f"{self._loss.item():.4f}"
        self._write(f"done: steps {step} loss {loss}")

    def _write(self, text: str) -> None:
        self._told = time.monotonic()
        if rank() == 0:
            print(f"{self._stage} {text}", flush=True)


def compiled_at(device: str) -> float:
    """Return the time when the first step, which compiles, is done; budgets of minutes begin here."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()
    return time.monotonic()
