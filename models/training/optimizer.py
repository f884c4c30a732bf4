"""Muon for the hidden matrices, AdamW for everything else, one schedule for both."""

from typing import Any

import torch
from torch import Tensor, nn

from models.training.muon import Muon
from models.training.workers import average

State = list[dict[str, Any]]
TABLES = ("embed", "codebook", "markov")
"""Names of matrices that have a row for each token; they are AdamW's too."""
NARROW = 16
"""Matrices with fewer outputs, such as those of gates, are AdamW's."""


class Optimizer:
    """Muon and AdamW behind one call; both follow the same scale."""

    def __init__(self, module: nn.Module, muon_lr: float, adam_lr: float, clip: float) -> None:
        trained = [(name, weight) for name, weight in module.named_parameters() if weight.requires_grad]
        matrices = [weight for name, weight in trained if _is_hidden(name, weight)]
        others = [weight for name, weight in trained if not _is_hidden(name, weight)]
        self._weights = [*matrices, *others]
        self._clip = clip
        self._muon_lr, self._adam_lr = muon_lr, adam_lr
        self._muon = Muon(matrices)
        self._adam = torch.optim.AdamW(others, lr=adam_lr, betas=(0.9, 0.95), weight_decay=0.0)

    def step(self, loss: Tensor, scale: float, progress: float) -> float:
        """Back-propagate, update with the peak rates times scale, return the workers' mean progress."""
        torch.autograd.backward(loss)
        progress = average(self._weights, progress)
        nn.utils.clip_grad_norm_(self._weights, self._clip)
        self._muon.step(self._muon_lr * scale)
        for group in self._adam.param_groups:
            group["lr"] = self._adam_lr * scale
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)
        return progress

    def state(self) -> State:
        """Return what a checkpoint must keep."""
        return [self._muon.state_dict(), self._adam.state_dict()]

    def load_state(self, state: State) -> None:
        """Continue from a checkpoint."""
        muon, adam = state
        self._muon.load_state_dict(muon)
        self._adam.load_state_dict(adam)


def _is_hidden(name: str, weight: Tensor) -> bool:
    return weight.dim() == 2 and len(weight) >= NARROW and not any(table in name for table in TABLES)
