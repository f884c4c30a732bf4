"""The copies in torch."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Mapped:
    """Destinations of the copies; `rows_B` may be longer than a round."""

    rows_B: Tensor
    length_S: Tensor
    anchor_S: Tensor
    history_length_S: Tensor


def publish_slots(rows_B: Tensor, length_S: Tensor, anchor_S: Tensor, mapped: Mapped) -> None:
    """Copy a round's rows, and lengths and anchors of all slots."""
    mapped.rows_B[: rows_B.shape[0]].copy_(rows_B)
    mapped.length_S.copy_(length_S)
    mapped.anchor_S.copy_(anchor_S)
    torch.add(length_S, 1, out=mapped.history_length_S)
