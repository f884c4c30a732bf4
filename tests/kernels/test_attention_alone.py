"""The kernel for a row that is alone: it fits beside a product, and which rounds it takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from services.common.kernels.linear import Normed
from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.kernel import Engine
from services.common.kernels.linear.skinny.tiling import skinny_cut
from services.common.kernels.rope import Rotation
from services.common.kernels.span_attention import Mask, Span, plan_span
from services.common.kernels.span_attention.alone import kernel
from services.common.kernels.span_attention.alone.source import CTAS, MOST_SHARED, takes_row
from services.common.kernels.span_attention.cut import PROCESSORS
from services.common.kernels.span_attention.projected import attend_projected
from services.common.kernels.span_attention.splits import MOST_SPLITS, TILE_TOKENS, split_tokens

KV_HEADS, GROUP, SIZE, WIDTH = 8, 4, 128, 2560
LINES = (GROUP + 2) * KV_HEADS * SIZE
PROCESSOR_SHARED_BYTES, RESERVED_BYTES = 233_472, 1024


@pytest.mark.parametrize(
    ("lines", "width"), [(LINES, WIDTH), (5120, 2048), (8256, 2048), (10304, 2048), (7168, 5120), (10240, 5120)]
)
def test_a_cta_has_room_beside_one_of_the_product_before(lines: int, width: int) -> None:
    """So it begins while that one drains, whatever lies behind the last line of a band."""
    product = skinny_cut(lines, width, 1, Kind.PLAIN)
    assert product is not None
    assert MOST_SHARED + product.shared_bytes + 2 * RESERVED_BYTES <= PROCESSOR_SHARED_BYTES


def test_it_takes_narrow_heads_of_short_contexts_whose_clusters_run_at_once() -> None:
    assert takes_row(4, 8, 128, short=True) and takes_row(8, 16, 128, short=True)
    assert not takes_row(4, 8, 128, short=False)
    assert not takes_row(4, 8, 256, short=True) and not takes_row(4, 8, 64, short=True)
    assert not takes_row(9, 8, 128, short=True)
    assert not takes_row(4, PROCESSORS // CTAS + 1, 128, short=True)


def test_it_takes_windows_of_no_more_splits_than_teams_in_any_context() -> None:
    for window in (1, 512, 961):
        assert takes_row(8, 8, 128, short=False, window=window)
        assert split_tokens(window) == TILE_TOKENS
        assert all((start % TILE_TOKENS + window - 1) // TILE_TOKENS < MOST_SPLITS for start in range(TILE_TOKENS))
    assert not takes_row(8, 8, 128, short=True, window=962)


class Round:
    """What `serves` is asked: a round on a CPU whose products are said to be of a GPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kernel, "engine_of", lambda *_: Engine.BANDS)
        monkeypatch.setattr(kernel, "_usable", lambda *_: True)
        self.normed = Normed(torch.zeros(1, WIDTH, dtype=torch.bfloat16))
        self.qkv_FD = torch.empty(LINES, WIDTH, dtype=torch.bfloat16, device="meta")
        self.rotation = Rotation(torch.zeros(1, 1, SIZE), torch.zeros(1, 1, SIZE))
        self.kv_2NSHD = torch.empty(2, 4, 16, KV_HEADS, SIZE, dtype=torch.bfloat16, device="meta")
        self.span = self.plan(1, 1)

    def plan(self, batch: int, width: int, mask: Mask | None = None) -> Span:
        table, lengths = torch.ones(batch, 3, dtype=torch.int32), torch.full((batch,), 20)
        return replace(plan_span(table, lengths, width, 16, mask=mask or Mask()), short=True)

    def serves(self, span: Span | None = None, kv_2NSHD: torch.Tensor | None = None) -> bool:
        kv_2NSHD = self.kv_2NSHD if kv_2NSHD is None else kv_2NSHD
        return kernel.serves(
            self.normed, self.qkv_FD, len(self.qkv_FD), None, self.rotation, kv_2NSHD, span or self.span, None
        )


def test_it_takes_one_open_row_of_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Round(monkeypatch)
    assert own.serves()
    assert not own.serves(replace(own.span, short=False))
    assert not own.serves(own.plan(2, 1)) and not own.serves(own.plan(1, 2))
    assert own.serves(own.plan(1, 1, Mask(window=8)))
    assert not own.serves(own.plan(1, 1, Mask(ancestors_BW=torch.ones(1, 1, dtype=torch.int64))))
    assert not own.serves(replace(own.span, lengths_B=own.span.lengths_B.int()))
    assert not own.serves(kv_2NSHD=own.kv_2NSHD.float())
    assert not own.serves(kv_2NSHD=own.kv_2NSHD[:, :, :4])


def test_it_stands_behind_no_other_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others let it begin before what it reads at once is complete."""
    own = Round(monkeypatch)
    for engine in (Engine.TILES, Engine.TRITON):
        monkeypatch.setattr(kernel, "engine_of", lambda *_, engine=engine: engine)
        assert not own.serves()


def test_a_cpu_goes_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Round(monkeypatch)
    assert attend_projected(own.normed, own.qkv_FD, None, own.rotation, own.kv_2NSHD, own.span, 1e-6) is None
