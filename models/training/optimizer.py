"""Muon for the hidden matrices, AdamW for everything else, one schedule for both."""

from typing import Any

import torch
from torch import Tensor, nn

from models.training.workers import average

State = list[dict[str, Any]]


class Optimizer:
    """Muon and AdamW behind one call; both follow the same scale."""

    def __init__(self, module: nn.Module, muon_lr: float, adam_lr: float, clip: float) -> None:
        trained = [(name, weight) for name, weight in module.named_parameters() if weight.requires_grad]
        matrices = [weight for name, weight in trained if weight.dim() == 2 and "embed" not in name]
        others = [weight for name, weight in trained if weight.dim() != 2 or "embed" in name]
        self._weights = [*matrices, *others]
        self._clip = clip
        self._peaks = (muon_lr, adam_lr)
        self._parts: tuple[torch.optim.Optimizer, ...] = (
            torch.optim.Muon(matrices, lr=muon_lr, weight_decay=0.01, momentum=0.95),
            torch.optim.AdamW(others, lr=adam_lr, betas=(0.9, 0.95), weight_decay=0.0),
        )

    def step(self, loss: Tensor, scale: float, progress: float) -> float:
        """Back-propagate, update with the peak rates times scale, return the workers' mean progress."""
        torch.autograd.backward(loss)
        progress = average(self._weights, progress)
        nn.utils.clip_grad_norm_(self._weights, self._clip)
        for part, peak in zip(self._parts, self._peaks, strict=True):
            for group in part.param_groups:
                group["lr"] = peak * scale
            part.step()
            part.zero_grad(set_to_none=True)
        return progress

    def state(self) -> State:
        """Return what a checkpoint must keep."""
        return [part.state_dict() for part in self._parts]

    def load_state(self, state: State) -> None:
        """Continue from a checkpoint."""
        for part, saved in zip(self._parts, state, strict=True):
            part.load_state_dict(saved)
