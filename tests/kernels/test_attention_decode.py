"""Attention of a row each of many sequences: which rounds it takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from services.common.kernels.linear import Normed
from services.common.kernels.rope import Rotation
from services.common.kernels.span_attention import Mask
from services.common.kernels.span_attention.decode import kernel
from services.common.kernels.span_attention.projected import attend_projected
from tests.kernels.served_round import KV_HEADS, LINES, WIDTH, ServedRound


def served(monkeypatch: pytest.MonkeyPatch) -> ServedRound:
    return ServedRound(monkeypatch, kernel)


def test_it_takes_a_row_each_of_many_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    own = served(monkeypatch)
    assert own.serves(own.plan(48)) and own.serves(own.plan(64)) and own.serves(own.plan(256))
    assert own.serves(own.plan(64), group=8) and own.serves(own.plan(64), group=1)
    assert not own.serves(own.plan(64), group=9), "a matrix instruction takes eight queries"
    assert not own.serves(own.plan(64, 2)), "drafted rows go another way"
    assert not own.serves(own.plan(32)), "too little is under way"


def test_it_takes_open_ranked_rounds_of_the_types_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    own = served(monkeypatch)
    span = own.plan(64)
    assert not own.serves(replace(span, ranks_B2=None))
    assert not own.serves(own.plan(64, mask=Mask(window=8)))
    assert not own.serves(replace(span, slots_T=span.slots_T.int()))
    assert not own.serves(span, rotation=Rotation(*(table.double() for table in own.rotation)))
    own.normed = Normed(own.normed.rows_TD.float())
    assert not own.serves(span)
    own = served(monkeypatch)
    own.kv_2NSHD = own.kv_2NSHD.new_empty(2, 4, 16, KV_HEADS, 256)
    assert not own.serves(span, group=1)


def test_a_cpu_goes_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    own = served(monkeypatch)
    qkv_FD = torch.empty(LINES, WIDTH, dtype=torch.bfloat16, device="meta")
    assert attend_projected(own.normed, qkv_FD, None, own.rotation, own.kv_2NSHD, own.plan(64), 1e-6) is None
