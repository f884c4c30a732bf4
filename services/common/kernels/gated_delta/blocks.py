"""The recurrence in blocks of 16 absolute positions: one arithmetic for plain rounds, verify and prefill.

Every product has the shape of a whole block, and what is not a row of it counts as zero before anything is multiplied:
so a row's bits depend on the rows before it alone, however rounds and chunks were cut.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from services.common.kernels.gated_delta.plan import BLOCK, BlockPlan
from services.common.kernels.gated_delta.pointwise import sigmoid, silu, softplus


class DeltaConstants(NamedTuple):
    """Of a layer: convolution [C, taps] and, by value head, decay rate (below zero) and bias, in the state's type."""

    conv_CK: Tensor
    decay_H: Tensor
    bias_H: Tensor
    k_heads: int
    k_dim: int


def gated_delta(
    rows_TC: Tensor, constants: DeltaConstants, plan: BlockPlan, state_SHKV: Tensor, ring_SRC: Tensor
) -> Tensor:
    """Return what the rows of a span read, [T, Hv * Dv] in the state's type; keep them, and fold complete blocks.

    Rows are as projected: queries, keys and values [C], then by value head the logit of beta, and the decay's input. A
    row that is not finite, and those whose convolution meets it, read NaN and count as absent for the others.
    """
    rows_BTC, live_BT1, broken_BT1 = _gathered(rows_TC, plan, ring_SRC, constants.conv_CK)
    ring_SRC.flatten(0, 1).index_copy_(0, plan.ring_N, rows_TC.index_select(0, plan.kept_N))
    q_NPK, k_NPK, v_NPV, beta_NP, g_NP = _projected(rows_BTC, live_BT1, constants, state_SHKV.shape[3])
    out_BTF = _scan(q_NPK, k_NPK, v_NPV, beta_NP, g_NP, plan, state_SHKV)
    out_BTF = out_BTF.masked_fill(broken_BT1, float("nan"))
    return out_BTF.flatten(0, 1).index_select(0, plan.out_T)


def _gathered(rows_TC: Tensor, plan: BlockPlan, ring_SRC: Tensor, conv_CK: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows by place in the state's type, zero where there is none; which of the blocks' are live, or broken."""
    old_TC = ring_SRC.flatten(0, 1).index_select(0, plan.ring_T)
    new_TC = rows_TC.index_select(0, plan.span_T)
    shape = [plan.live_BT1.shape[0], plan.live_BT1.shape[1], -1]
    rows_BTC = torch.where(plan.fresh_BT1, new_TC.view(shape), old_TC.view(shape)).to(conv_CK.dtype)
    sound_BT1 = rows_BTC.isfinite().all(-1, keepdim=True)
    rows_BTC = rows_BTC.masked_fill(~(plan.live_BT1 & sound_BT1), 0.0)
    first = conv_CK.shape[1] - 1
    live_BT1, ill_BT1 = plan.live_BT1[:, first:], plan.live_BT1 & ~sound_BT1
    broken_BT1 = ill_BT1[:, first:]
    for tap in range(first):
        broken_BT1 = broken_BT1 | ill_BT1[:, tap : tap + live_BT1.shape[1]]
    return rows_BTC, live_BT1 & ~broken_BT1, live_BT1 & broken_BT1


def _projected(
    rows_BTC: Tensor, live_BT1: Tensor, constants: DeltaConstants, v_dim: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return queries, keys, values, beta and log decay by block, [B * Hv * blocks, 16, ...]; zero where not live."""
    conv_CK, k_heads, k_dim = constants.conv_CK, constants.k_heads, constants.k_dim
    channels, taps, places = conv_CK.shape[0], conv_CK.shape[1], live_BT1.shape[1]
    mixed_BTC = rows_BTC[:, :places, :channels] * conv_CK[:, 0]
    for tap in range(1, taps):
        mixed_BTC = mixed_BTC + rows_BTC[:, tap : tap + places, :channels] * conv_CK[:, tap]
    mixed_BTC = silu(mixed_BTC).masked_fill(~live_BT1, 0.0)
    keys, heads = k_heads * k_dim, constants.decay_H.shape[0]
    q_BTHK = _unit(mixed_BTC[:, :, :keys].unflatten(2, [k_heads, k_dim])) * float(k_dim) ** -0.5
    k_BTHK = _unit(mixed_BTC[:, :, keys : 2 * keys].unflatten(2, [k_heads, k_dim]))
    v_BTHV = mixed_BTC[:, :, 2 * keys :].unflatten(2, [heads, v_dim])
    gates_BTH = rows_BTC[:, taps - 1 :, channels:]
    beta_BTH = sigmoid(gates_BTH[:, :, :heads]).masked_fill(~live_BT1, 0.0)
    g_BTH = (softplus(gates_BTH[:, :, heads:] + constants.bias_H) * constants.decay_H).masked_fill(~live_BT1, 0.0)
    group = heads // k_heads
    return (
        _by_block(q_BTHK.repeat_interleave(group, 2)), _by_block(k_BTHK.repeat_interleave(group, 2)),
        _by_block(v_BTHV), _by_block(beta_BTH[..., None])[..., 0], _by_block(g_BTH[..., None])[..., 0],
    )  # fmt: skip


def _unit(x: Tensor) -> Tensor:
    squares: Tensor = (x * x).sum(-1, keepdim=True)
    unit: Tensor = x * (squares + 1e-6).rsqrt()
    return unit


def _by_block(x_BTHX: Tensor, block: int = BLOCK) -> Tensor:
    """Return [B * H * blocks, 16, X], the blocks of a head side by side."""
    x_BHNPX: Tensor = x_BTHX.transpose(1, 2).unflatten(2, [-1, block])
    return x_BHNPX.flatten(0, 2).contiguous()


def _solved(lower_NPP: Tensor) -> Tensor:
    """Return the inverse of 1 + a strictly lower triangle, by forward substitution: a row comes of those before it."""
    inverse_NPP = torch.eye(lower_NPP.shape[1], dtype=lower_NPP.dtype).repeat(lower_NPP.shape[0], 1, 1)
    for row in range(1, lower_NPP.shape[1]):
        inverse_NPP[:, row, :row] = -torch.bmm(lower_NPP[:, row : row + 1, :row], inverse_NPP[:, :row, :row])[:, 0]
    return inverse_NPP


def _scan(
    q_NPK: Tensor, k_NPK: Tensor, v_NPV: Tensor, beta_NP: Tensor, g_NP: Tensor, plan: BlockPlan, state_SHKV: Tensor
) -> Tensor:
    """Return what each place reads [B, T, Hv * Dv], block after block; store the state where a fold ends."""
    total_NP = g_NP.cumsum(1)
    apart_NPP = total_NP[:, :, None] - total_NP[:, None, :]
    above_PP = torch.ones(apart_NPP.shape[1:], dtype=torch.bool).triu(1)
    decay_NPP = apart_NPP.masked_fill(above_PP, float("-inf")).exp()
    keys_NKP, since_NP1 = k_NPK.transpose(1, 2), total_NP.exp()[:, :, None]
    lower_NPP = (torch.bmm(k_NPK, keys_NKP) * decay_NPP * beta_NP[:, :, None]).tril(-1)
    heads, blocks, batch = state_SHKV.shape[1], plan.blocks, plan.slots_B.shape[0]
    by_block = [batch * heads, blocks, g_NP.shape[1], -1]
    solved = _solved(lower_NPP).view(by_block)
    reads = (torch.bmm(q_NPK, keys_NKP) * decay_NPP).view(by_block)
    q, k = (q_NPK * since_NP1).view(by_block), (k_NPK * since_NP1).view(by_block)
    v, beta = v_NPV.view(by_block), beta_NP[:, :, None].view(by_block)
    ends = (k_NPK * (total_NP[:, -1:] - total_NP).exp()[:, :, None]).view(by_block).transpose(2, 3)
    whole = since_NP1[:, -1:].reshape([batch * heads, blocks, 1, 1])
    kept_BHKV = state_SHKV.index_select(0, plan.slots_B)
    state_NKV = kept_BHKV.masked_fill(~plan.started_B[:, None, None, None], 0.0).flatten(0, 1)
    out: list[Tensor] = []
    for block in range(blocks):
        missing_NPV = (v[:, block] - torch.bmm(k[:, block], state_NKV)) * beta[:, block]
        update_NPV = torch.bmm(solved[:, block], missing_NPV)
        out.append(torch.bmm(q[:, block], state_NKV) + torch.bmm(reads[:, block], update_NPV))
        state_NKV = state_NKV * whole[:, block] + torch.bmm(ends[:, block], update_NPV)
        if block + 1 in plan.folds:
            folding_N = (plan.fold_B == block + 1).nonzero().flatten()
            folded_NHKV = state_NKV.view_as(kept_BHKV).index_select(0, folding_N)
            state_SHKV.index_copy_(0, plan.slots_B.index_select(0, folding_N), folded_NHKV)
    out_BHNPV: Tensor = torch.stack(out, 1).unflatten(0, [batch, heads])
    return out_BHNPV.permute(0, 2, 3, 1, 4).flatten(3).flatten(1, 2)
