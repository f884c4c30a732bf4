"""Muon (Jordan 2024) over matrices of equal shape at once: as `torch.optim.Muon`, in a tenth of its launches."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5


@dataclass(frozen=True)
class Group:
    """Matrices of one shape [rows, columns], and their momenta [count, rows, columns]."""

    weights: list[Tensor]
    momenta: Tensor

    @property
    def scale(self) -> float:
        """What a tall matrix's rate is multiplied by."""
        _, rows, columns = self.momenta.shape
        return math.sqrt(max(1.0, rows / columns))


class Muon:
    """Nesterov momentum, made orthogonal."""

    def __init__(self, weights: Sequence[Tensor], momentum: float = 0.95, weight_decay: float = 0.01) -> None:
        self._momentum, self._weight_decay = momentum, weight_decay
        shapes = dict.fromkeys(weight.shape for weight in weights)
        alike = [[weight for weight in weights if weight.shape == shape] for shape in shapes]
        self._groups = [Group(same, torch.zeros_like(torch.stack(same), requires_grad=False)) for same in alike]

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Update by the gradients at a rate, and drop them."""
        for group in self._groups:
            gradients = torch.stack([_gradient(weight) for weight in group.weights])
            group.momenta.lerp_(gradients, 1.0 - self._momentum)
            updates = orthogonal(gradients.lerp_(group.momenta, self._momentum)).to(gradients.dtype)
            torch._foreach_mul_(group.weights, 1.0 - lr * self._weight_decay)
            torch._foreach_add_(group.weights, list(updates.unbind()), alpha=-lr * group.scale)
            for weight in group.weights:
                weight.grad = None

    def state_dict(self) -> dict[str, list[Tensor]]:
        """Return what a checkpoint must keep."""
        return {"momenta": [group.momenta for group in self._groups]}

    def load_state_dict(self, state: dict[str, list[Tensor]]) -> None:
        """Continue from a checkpoint."""
        for group, saved in zip(self._groups, state["momenta"], strict=True):
            group.momenta.copy_(saved)


def orthogonal(matrices: Tensor) -> Tensor:
    """Return near-orthogonal matrices of the same directions by five steps of Newton and Schulz, in bfloat16."""
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.bfloat16()
    x = x.mT if tall else x
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    first, second, third = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=second, alpha=third)
        x = torch.baddbmm(x, polynomial, x, beta=first)
    return x.mT if tall else x


def _gradient(weight: Tensor) -> Tensor:
    assert weight.grad is not None, "every matrix takes part in the loss"
    return weight.grad
