"""The recurrence of one sequence token by token, from its first row on: what blocks are judged by (float64)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from services.common.kernels.gated_delta.blocks import DeltaConstants


def gated_delta(rows_TC: Tensor, constants: DeltaConstants, v_dim: int) -> tuple[Tensor, Tensor]:
    """Return what each row reads [T, Hv, Dv], and the state after each [T, Hv, Dk, Dv], in the constants' type."""
    conv_CK, heads = constants.conv_CK, len(constants.decay_H)
    channels, taps = conv_CK.shape
    rows_TC = rows_TC.to(conv_CK.dtype)
    padded_TC = F.pad(rows_TC[:, :channels], (0, 0, taps - 1, 0))
    state_HKV = torch.zeros(heads, constants.k_dim, v_dim, dtype=conv_CK.dtype)
    reads, states = [], []
    for place, row_C in enumerate(rows_TC):
        mixed_C = F.silu((padded_TC[place : place + taps].T * conv_CK).sum(1))
        q_HK, k_HK, v_HV = _heads(mixed_C, constants, v_dim)
        beta_H, input_H = row_C[channels:].sigmoid().chunk(2)[0], row_C[channels + heads :]
        state_HKV = state_HKV * (F.softplus(input_H + constants.bias_H) * constants.decay_H).exp()[:, None, None]
        held_HV = torch.einsum("hkv,hk->hv", state_HKV, k_HK)
        state_HKV = state_HKV + torch.einsum("hk,hv->hkv", k_HK, (v_HV - held_HV) * beta_H[:, None])
        reads.append(torch.einsum("hkv,hk->hv", state_HKV, q_HK))
        states.append(state_HKV)
    return torch.stack(reads), torch.stack(states)


def _heads(mixed_C: Tensor, constants: DeltaConstants, v_dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return query, key and value of each value head; keys and queries have length 1, queries are scaled."""
    k_heads, k_dim = constants.k_heads, constants.k_dim
    q_C, k_C, v_C = mixed_C.split([k_heads * k_dim, k_heads * k_dim, len(mixed_C) - 2 * k_heads * k_dim])
    q_HK, k_HK = (
        (x_HK * (x_HK.square().sum(-1, keepdim=True) + 1e-6).rsqrt()).repeat_interleave(
            len(constants.decay_H) // k_heads, 0
        )
        for x_HK in (q_C.view(k_heads, k_dim), k_C.view(k_heads, k_dim))
    )
    return q_HK * k_dim**-0.5, k_HK, v_C.view(-1, v_dim)
