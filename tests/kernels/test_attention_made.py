"""Attention that makes its heads of a product: which rounds it takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from services.common.kernels.linear.kernel import Engine
from services.common.kernels.rope import Rotation
from services.common.kernels.span_attention import Mask
from services.common.kernels.span_attention.hopper import made
from services.common.kernels.span_attention.projected import attend_projected
from tests.kernels.served_round import KV_HEADS, LINES, WIDTH, ServedRound


def served(monkeypatch: pytest.MonkeyPatch) -> ServedRound:
    monkeypatch.setattr(made, "engine_of", lambda *_: Engine.LIBRARY)
    return ServedRound(monkeypatch, made)


def test_it_takes_many_sequences_of_up_to_eight_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    own = served(monkeypatch)
    assert own.serves(own.plan(64, 8)) and own.serves(own.plan(32, 4)) and own.serves(own.plan(128, 6))
    assert own.serves(own.plan(64, 4), group=8)
    assert not own.serves(own.plan(64, 8), group=8), "a warpgroup has half as many rows"
    assert not own.serves(own.plan(64, 12), group=2), "there is room for what eight positions are made of"
    assert not own.serves(own.plan(8, 8)), "few sequences share an item"
    assert not own.serves(own.plan(64, 4)), "Triton's programs take so few rows"


def test_it_takes_open_ranked_rounds_of_the_types_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    own = served(monkeypatch)
    span = own.plan(64, 8)
    assert not own.serves(replace(span, ranks_B2=None))
    assert not own.serves(own.plan(64, 8, Mask(window=8)))
    assert not own.serves(replace(span, slots_T=span.slots_T.int()))
    assert not own.serves(span, rotation=Rotation(*(table.double() for table in own.rotation)))
    own.kv_2NSHD = own.kv_2NSHD.new_empty(2, 4, 16, KV_HEADS, 256)
    assert not own.serves(span, group=1)


def test_it_stands_behind_no_product_that_lets_it_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads tables and older tiles at once."""
    own = served(monkeypatch)
    for engine in (Engine.BANDS, Engine.TILES, Engine.TRITON):
        monkeypatch.setattr(made, "engine_of", lambda *_, engine=engine: engine)
        assert not own.serves(own.plan(64, 8))


def test_a_cpu_goes_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    own = served(monkeypatch)
    qkv_FD = torch.empty(LINES, WIDTH, dtype=torch.bfloat16, device="meta")
    assert attend_projected(own.normed, qkv_FD, None, own.rotation, own.kv_2NSHD, own.plan(64, 8), 1e-6) is None
