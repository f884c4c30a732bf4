"""Orders of weights that blocks take, made of those in files: so that a variant costs nothing when it is served."""

import torch
from torch import Tensor

from services.common.model.spec import Attention


def halves_apart(lines: Tensor, attention: Attention) -> Tensor:
    """Return lines [F, ...] of heads that turn in part with the partners of each pair half a head apart.

    Files have those that turn first: pairs (i, i + turning / 2). The order of a head's dimensions is free, as long as
    queries and keys have the same one; values, whose lines come after those of queries and keys, keep theirs.
    """
    size, turning = attention.head_dim, attention.rope.turning
    if turning is None:
        return lines
    half, middle = turning // 2, (size + turning) // 2
    order = [*range(half), *range(turning, middle), *range(half, turning), *range(middle, size)]
    heads = 1 if len(lines) == size else attention.heads + attention.kv_heads
    turned = lines[: heads * size].unflatten(0, (heads, size))[:, order].flatten(0, 1)
    return torch.cat((turned, lines[heads * size :]))


def queries_and_gates(lines_FD: Tensor, attention: Attention) -> tuple[Tensor, Tensor]:
    """Return queries, keys and values, and the gates, of lines that hold a head's gate behind its queries."""
    size, heads = attention.head_dim, attention.heads
    both_HSD, rest_FD = lines_FD[: 2 * heads * size].unflatten(0, (heads, 2 * size)), lines_FD[2 * heads * size :]
    return torch.cat((both_HSD[:, :size].flatten(0, 1), rest_FD)), both_HSD[:, size:].flatten(0, 1)
