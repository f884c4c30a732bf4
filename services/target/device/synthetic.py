"""Synthetic acceptance: all the work of a round with random weights, and acceptance at given rates.

The logits are edited: drafts to accept become the best tokens of their rows, the other drafts become impossible. The
accept rule stays as it is and accepts exactly the wanted drafts.
"""

import torch
from torch import Tensor

from services.common.kernels.accept import SlotState
from services.common.kernels.force_acceptance import force_acceptance, force_nodes
from services.common.kernels.nodes import Nodes
from services.common.kernels.row_table import RowTable


class SyntheticAcceptance:
    """Edits logits in place, within a captured step; unconditional rates by position, falling."""

    def __init__(self, rates: tuple[float, ...], width: int, slots: int, device: torch.device) -> None:
        """`rates` beyond the round's drafts are left out; missing ones are 0. Each slot has a line of its own."""
        known = (*rates, *[0.0] * width)[: width - 1]
        self.rates_SK = torch.tensor(known, dtype=torch.float32, device=device).repeat(slots, 1)

    def apply(
        self,
        logits_BWV: Tensor,
        drafts_BK: Tensor,
        rows_B: Tensor,
        slots: SlotState,
        table: RowTable | None = None,
    ) -> None:
        """Raise the scores of drafts to accept [B, K] above all others, and lower those of the rest."""
        force_acceptance(logits_BWV, drafts_BK, self.rates_SK, rows_B, slots, table)


class SyntheticNodes:
    """The same for trees: by depth and by place among siblings, for each position anew."""

    def __init__(self, rates: tuple[float, ...], siblings: tuple[float, ...], slots: int, device: torch.device) -> None:
        """A first child is right as often as a chain's draft of its depth, where the path before it is.

        `siblings` are the chances of the second child and of later ones, where those before are wrong.
        """
        edges = [
            edges_of(rate / before if before else 0.0, siblings)
            for before, rate in zip((1.0, *rates), rates, strict=False)
        ]
        self.edges_SDR = torch.tensor(edges, dtype=torch.float32, device=device).repeat(slots, 1, 1)

    def apply(
        self,
        logits_BWV: Tensor,
        drafts_BK: Tensor,
        rows_B: Tensor,
        slots: SlotState,
        nodes: Nodes,
    ) -> None:
        """Raise the scores of nodes to accept, in the rows of their parents, and lower those of their siblings."""
        force_nodes(logits_BWV, drafts_BK, self.edges_SDR, rows_B, slots, nodes)


def edges_of(first: float, siblings: tuple[float, ...]) -> list[float]:
    """Return how likely it is that a child up to each place is right."""
    edges = [first]
    for chance in siblings:
        edges.append(edges[-1] + (1.0 - edges[-1]) * chance)
    return edges
