"""The loss of drafted rows against what the target itself would say there, without keeping logits of all rows."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

Judge = Callable[[Tensor, Tensor, "Labels", float], tuple[Tensor, Tensor]]


class Labels(NamedTuple):
    """What rows are asked for: the target's final-normed row [rows, hidden], its token, whether it is greedy, a weight.

    The label of a greedy text's row is its token, that of a drawn one the distribution that it was drawn from.
    """

    normed: Tensor
    tokens: Tensor
    greedy: Tensor
    weights: Tensor

    def part(self, start: int, end: int) -> "Labels":
        """Return some rows."""
        return Labels(*(value[start:end] for value in self))


class DraftLoss(torch.autograd.Function):
    """The weighted mean cross-entropy of final-normed drafted rows [rows, hidden], chunk by chunk.

    The gradient is made with the loss: a chunk's logits live once.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, table: Tensor, labels: Labels, how: tuple[float, int, Judge]) -> Tensor:
        """Return the loss; `how` is the temperature, the rows of a chunk and the judge of a chunk."""
        temperature, chunk, judge = how
        total, gradient = torch.zeros((), device=hidden.device), torch.empty_like(hidden)
        weight = labels.weights.sum().clamp(min=1e-6)
        for start in range(0, len(hidden), chunk):
            part = labels.part(start, start + chunk)
            drafted, told = hidden[start : start + chunk] @ table.T, part.normed @ table.T
            loss, slope = judge(drafted, told, part, temperature)
            total += loss
            gradient[start : start + chunk] = slope @ table
        ctx.save_for_backward(gradient / weight)
        return total / weight

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None, None, None]:
        """Scale the gradient that was made with the loss."""
        (gradient,) = ctx.saved_tensors
        return gradient * outer[0], None, None, None


def judge(drafted: Tensor, told: Tensor, labels: Labels, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the weighted sum of the rows' losses, and its slope by the drafted logits [rows, vocabulary]."""
    logits = drafted.float() / temperature
    own = logits.log_softmax(-1)
    drawn = (told.float() / temperature).softmax(-1)
    token = torch.arange(drafted.shape[1], device=drafted.device) == labels.tokens[:, None]
    wanted = torch.where(labels.greedy[:, None], token.float(), drawn)
    loss = -(torch.where(wanted > 0, wanted * own, 0.0)).sum(-1)
    slope = (own.exp() - wanted) * (labels.weights / temperature)[:, None]
    return (loss * labels.weights).sum(), slope.to(drafted.dtype)


def draft_loss(
    hidden: Tensor, table: Tensor, labels: Labels, temperature: float, chunk: int, judged: Judge = judge
) -> Tensor:
    """Return the weighted mean loss of rows [rows, hidden]; see `DraftLoss`."""
    loss: Tensor = DraftLoss.apply(  # type: ignore[no-untyped-call]
        hidden, table, labels, (temperature, chunk, judged)
    )
    return loss


def decay(offsets: Tensor, gamma: float) -> Tensor:
    """Return the weight of rows by their place in the block: 1 for the first draft."""
    return torch.exp(-(offsets.float() - 1.0) / gamma)
