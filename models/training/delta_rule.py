"""The gated delta rule (arXiv:2412.06464) of many sequences at once: in chunks, which train, and for one row.

Sizes: Z sequences and heads, N chunks of C rows, K and V channels of keys and values.
"""

import torch
from torch import Tensor

CHUNK = 64


class Solve(torch.autograd.Function):
    """The inverse of 1 + a strictly lower triangle; its gradient takes two products and no second solve."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, lower_ZCC: Tensor) -> Tensor:
        """Return the inverse, of the same shape."""
        ones_CC = torch.eye(lower_ZCC.shape[-1], device=lower_ZCC.device, dtype=lower_ZCC.dtype)
        inverse_ZCC: Tensor = torch.linalg.solve_triangular(
            lower_ZCC, ones_CC.expand_as(lower_ZCC), upper=False, unitriangular=True
        )
        ctx.save_for_backward(inverse_ZCC)
        return inverse_ZCC

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> Tensor:
        """Return the gradient of the triangle."""
        (inverse_ZCC,) = ctx.saved_tensors  # type: ignore[attr-defined]
        turned_ZCC = inverse_ZCC.mT
        steeper_ZCC: Tensor = turned_ZCC @ gradients[0] @ turned_ZCC
        return steeper_ZCC.tril(-1).neg()


def in_chunks(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return what rows read [Z, N, C, V], and the state after them [Z, K, V].

    q, k [Z, N, C, K], v [Z, N, C, V], beta and log decay g [Z, N, C]; the state before them [Z, K, V].
    """
    total = g.cumsum(-1)
    above = torch.ones(g.shape[-1], g.shape[-1], dtype=torch.bool, device=g.device).triu(1)
    decay = (total[..., :, None] - total[..., None, :]).masked_fill(above, -torch.inf).exp()
    since, scale = total.exp()[..., None], beta[..., None]
    solved: Tensor = Solve.apply((k @ k.mT * decay * scale).tril(-1))  # type: ignore[no-untyped-call]
    wanted, held = solved @ (v * scale), solved @ (k * scale * since)
    ends, whole = (k * (total[..., -1:] - total).exp()[..., None]).mT, since[:, :, -1:]
    states, updates = [], []
    for chunk in range(g.shape[1]):
        update = wanted[:, chunk] - held[:, chunk] @ state
        states.append(state)
        updates.append(update)
        state = state * whole[:, chunk] + ends[:, chunk] @ update
    out = (q * since) @ torch.stack(states, 1) + (q @ k.mT * decay) @ torch.stack(updates, 1)
    return out, state


def one_row(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor, state: Tensor) -> Tensor:
    """Move the state [Z, K, V] by one row, in place, and return what the row reads [Z, 1, V]; no gradient.

    q, k [Z, 1, K] and v [Z, 1, V]. Beta and log decay g are [Z, 1].
    """
    state.mul_(g.exp()[..., None])
    state.baddbmm_(k.mT, (v - k @ state) * beta[..., None])
    return q @ state
