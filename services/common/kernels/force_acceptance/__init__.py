"""Edits logits for synthetic acceptance: drafts to accept become the best tokens of their rows."""

import torch
from torch import Tensor

from services.common.device.noise import PURPOSE_SYNTHETIC, uniform
from services.common.kernels.accept import SlotState
from services.common.kernels.dispatch import Operator
from services.common.kernels.nodes import Nodes
from services.common.kernels.row_table import RowTable

LIFT = 1e4


@Operator
def force_acceptance(
    logits_BWV: Tensor,
    drafts_BK: Tensor,
    rates_K: Tensor,
    rows_B: Tensor,
    slots: SlotState,
    table: RowTable | None = None,
) -> None:
    """Raise the scores of drafts to accept above all others and lower those of the rest, in place.

    A row draws one number: draft j is raised when it is below its rate, so rates are unconditional and fall. The
    number depends on the request's seed and the position of the span's first choice, not on row, slot or round. Rates
    may have lines [N, K], which slots have in turn. With a `table` logits are of the rows of pieces [P, G, V].
    """
    slots_B = rows_B.long()
    chance_B = uniform(slots.seed_S[slots_B], slots.length_S[slots_B] + 1, PURPOSE_SYNTHETIC)
    rates_NK = torch.atleast_2d(rates_K)
    rates_BK = rates_NK[slots_B % len(rates_NK)]
    lift_BK = torch.where(chance_B[:, None] < rates_BK, LIFT, -LIFT).to(logits_BWV.dtype)
    if table is None:
        logits_BWV[:, :-1].scatter_(2, drafts_BK.clamp_min(0).unsqueeze(2), lift_BK.unsqueeze(2))
        return
    row_BK = table.rows_of(drafts_BK.shape[1])
    known_BK = torch.arange(drafts_BK.shape[1]) < table.takes_B[:, None]
    logits_BWV.flatten(0, 1)[row_BK[known_BK], drafts_BK.clamp_min(0)[known_BK]] = lift_BK[known_BK]


@Operator
def force_nodes(
    logits_BWV: Tensor,
    drafts_BK: Tensor,
    edges_NDR: Tensor,
    rows_B: Tensor,
    slots: SlotState,
    nodes: Nodes,
) -> None:
    """Do the same of trees, by depth and by place among siblings.

    A position draws one number, by the request's seed. The child of a place is raised when the number lies between the
    edges of the place before and its own, so one child at most is. Absent drafts move nothing. Slots have lines of
    edges [N, D, R] in turn; no child of a further place is raised.
    """
    slots_B, parents_BK = rows_B.long(), nodes.parents_BK
    depths_BK = nodes.depths_BW[:, 1:] - 1
    before_BK = (parents_BK[:, None] == parents_BK[:, :, None]).tril(-1).sum(-1)
    seeds_BK = slots.seed_S[slots_B][:, None].expand_as(depths_BK)
    chance_BK = uniform(seeds_BK, slots.length_S[slots_B][:, None] + 1 + depths_BK, PURPOSE_SYNTHETIC)
    edges_NDR = torch.nn.functional.pad(edges_NDR, (1, 0))
    depth, places = edges_NDR.shape[1], edges_NDR.shape[2] - 1
    line_B1, at_BK = (slots_B % len(edges_NDR))[:, None], depths_BK.clamp_max(depth - 1)
    low_BK = edges_NDR[line_B1, at_BK, before_BK.clamp_max(places - 1)]
    high_BK = edges_NDR[line_B1, at_BK, before_BK.clamp_max(places - 1) + 1]
    raised_BK = (low_BK <= chance_BK) & (chance_BK < high_BK) & (before_BK < places) & (depths_BK < depth)
    line_M, draft_M = (drafts_BK >= 0).nonzero(as_tuple=True)
    lift_M = torch.where(raised_BK[line_M, draft_M], LIFT, -LIFT).to(logits_BWV.dtype)
    logits_BWV[line_M, parents_BK[line_M, draft_M], drafts_BK[line_M, draft_M]] = lift_M
