"""Raising drafts in torch."""

import torch
from torch import Tensor

LIFT = 1e4
_WORD = 0xFFFFFFFF


def force_acceptance(logits_BWV: Tensor, drafts_BK: Tensor, rates_K: Tensor, calls_B: Tensor) -> None:
    """Raise or lower the scores of every row's drafts in place."""
    chance_B1 = draws(calls_B)[:, None]
    calls_B += 1
    lift_BK = torch.where(chance_B1 < rates_K, LIFT, -LIFT).to(logits_BWV.dtype)
    logits_BWV[:, :-1].scatter_(2, drafts_BK.clamp_min(0).unsqueeze(2), lift_BK.unsqueeze(2))


def draws(calls_B: Tensor) -> Tensor:
    """Return numbers of [0, 1), float32: a row and its count, scrambled by the end of MurmurHash3."""
    word_B = torch.arange(len(calls_B), device=calls_B.device) * 0x9E3779B9 + calls_B & _WORD
    word_B = (word_B ^ word_B >> 16) * 0x85EBCA6B & _WORD
    word_B = (word_B ^ word_B >> 13) * 0xC2B2AE35 & _WORD
    return (word_B >> 8 ^ word_B >> 24).float() * 2.0**-24
