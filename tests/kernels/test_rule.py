"""The rule that cuts products which no table has: legal for any weight, near what was measured, and behind tables."""

from __future__ import annotations

import re
from itertools import product
from random import Random

import pytest

from services.common.kernels import nvrtc
from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.persistent.launch import source_of
from services.common.kernels.linear.persistent.rule import fits, ruled_cut, seconds, shortlist
from services.common.kernels.linear.persistent.tiling import PersistentTiling
from services.common.kernels.linear.persistent.wide import MEASURED, wide_cut
from tests.bench.gpu.int8.eight import CTA_BYTES, PROCESSOR_BYTES, SHARED_BYTES
from tests.support.cases import each

PROCESSORS, REGISTERS, WARP = 132, 65_536, 32
KINDS = (Kind.PLAIN, Kind.GATED, Kind.ADDED)
Weight = tuple[int, int, int, Kind]


def weights(count: int) -> list[Weight]:
    """Lines, depth, rows and what follows, of weights that nobody tuned."""
    random = Random(20261129)
    sides = [(random.randrange(1, 6000) * 4, random.randrange(1, 400) * 64) for _ in range(count)]
    return [(*sides[at], random.choice((65, 96, 128, 200, 256, 512)), KINDS[at % 3]) for at in range(count)]


@each("wide", [True, False])
@each("weight", weights(150))
def test_whatever_is_cut_fits_a_multiprocessor_and_covers_the_product(weight: Weight, wide: bool) -> None:
    lines, depth, rows, kind = weight
    own = ruled_cut(lines, depth, rows, kind, wide)
    if own is None:
        assert not shortlist(lines, depth, rows, kind, 1, wide=wide)
        return
    assert own.kind == kind and own.wide == wide
    assert own.shared_bytes <= SHARED_BYTES and own.shared_bytes + CTA_BYTES <= PROCESSOR_BYTES
    assert (
        own.lines % (8 if wide or own.lines <= 24 else 16) == 0
        and own.lines <= 256
        and own.halves * own.band <= own.lines
    )
    assert depth % own.depth == 0 and own.band % (4 // own.halves) == 0
    parts = -(-own.threads // (4 * WARP))
    assert own.lines // 2 + 24 <= REGISTERS // 4 // WARP // parts
    outputs, height = lines // own.halves, own.height(rows)
    assert height % (8 * own.across) == 0 and height <= own.rows
    assert own.tiles(rows, outputs) * height * own.share * own.band * own.across >= rows * outputs
    assert own.grid(rows, outputs, PROCESSORS)[0] % own.cluster == 0
    assert own.line_box <= 256


def test_what_is_cut_compiles_without_spilling(full: bool) -> None:
    """The compiler asserts what else a tiling must be, and says how many bytes of registers it had to leave."""
    found = weights(150 if full else 6)
    # Integers add a second program a weight, of which a few tell as much.
    cuts = dict.fromkeys(
        [ruled_cut(*weight) for weight in found] + [ruled_cut(*weight, wide=False) for weight in found[1::2]]
    )
    for own in filter(None, cuts):
        source = source_of(own)
        said = nvrtc.report(source.text, "product", source.headers())
        assert re.search(r"\b0 bytes spill stores, 0 bytes spill loads", said), f"{own}: {said}"


@each("rows", [112, 256, 384, 448, 512, 640, 768, 896, 1024, 2048])
@each("lines", [576, 2048, 4096, 5120])
def test_ctas_share_a_band_where_the_swizzle_begins(lines: int, rows: int) -> None:
    """The compiler asserts it of a band in eights of lines. Those of eight bits are multiplied in sixteens, which are
    more: SmolLM2's drafter had such a cut, and went by Triton.
    """
    for depth, kind, wide in product((1536, 4096), KINDS, (True, False)):
        for cut in shortlist(lines, depth, rows, kind, 12, wide=wide):
            alone = cut.subs % cut.share and cut.halves % cut.share
            assert not alone or -(-cut.band // 8) % cut.share == 0, cut


def test_every_cut_of_a_shortlist_is_legal_and_no_two_are_alike() -> None:
    for lines, depth, rows, kind in weights(9):
        found = shortlist(lines, depth, rows, kind, 6)
        assert len(set(found)) == len(found) and all(fits(cut, lines, depth) for cut in found)
        assert all(cut.cluster <= 2 for cut in found)


@pytest.mark.parametrize(
    "cut",
    [
        PersistentTiling(64, 40, 1, 13, wide=True, share=4), PersistentTiling(256, 256, 1, 3, wide=True),
        PersistentTiling(128, 42, 1, 6, wide=True), PersistentTiling(64, 64, 3, 4, wide=True),
        PersistentTiling(256, 216, 1, 4, wide=True), PersistentTiling(128, 256, 1, 8, wide=True),
    ],
)  # fmt: skip
def test_what_no_multiprocessor_has_room_for_or_no_weight_can_be_cut_by_does_not_fit(cut: PersistentTiling) -> None:
    assert not fits(cut, 4096, 4096)


def test_the_rule_finds_what_was_measured_to_be_the_quickest_of_some_products() -> None:
    for (lines, depth, kind), rows in (
        ((6144, 2560, Kind.PLAIN), 128), ((19456, 2560, Kind.GATED), 128), ((19456, 2560, Kind.GATED), 192),
        ((18432, 2560, Kind.GATED), 96),
    ):  # fmt: skip
        own = MEASURED[lines, depth, kind][rows]
        assert own is not None and own.rows * own.band
        found = ruled_cut(lines, depth, rows, kind)
        assert found is not None
        assert (found.rows, found.band, found.share) == (own.rows, own.band, own.share)


def test_the_model_is_within_what_it_was_checked_for() -> None:
    """By the README of products, us: gate and up of 128, 192 and 256 rows, and o and down, where it errs most."""
    for (lines, depth, kind), rows, us in (
        ((19456, 2560, Kind.GATED), 128, 27.6), ((19456, 2560, Kind.GATED), 192, 32.3),
        ((19456, 2560, Kind.GATED), 256, 40.4), ((2560, 4096, Kind.ADDED), 128, 9.3),
        ((2560, 9728, Kind.ADDED), 128, 18.0),
    ):  # fmt: skip
        own = MEASURED[lines, depth, kind][rows]
        assert own is not None
        assert 0.8 <= seconds(own, lines, depth, rows) * 1e6 / us <= 1.32


def test_tables_come_first_and_the_rule_serves_what_they_do_not_have() -> None:
    for (lines, depth, kind), cuts in MEASURED.items():
        for rows, cut in cuts.items():
            assert wide_cut(lines, depth, rows, kind) == cut
        assert wide_cut(lines, depth, max(cuts) + 1, kind) is None
    for hidden, (rows, kind) in product((4096, 5120), ((96, Kind.ADDED), (128, Kind.PLAIN), (192, Kind.GATED))):
        assert wide_cut(2 * hidden, hidden, rows, kind) == ruled_cut(2 * hidden, hidden, rows, kind) is not None
        assert wide_cut(2 * hidden, hidden, 2 * rows + 128, kind) is None
    assert wide_cut(151_936, 4096, 512, Kind.PLAIN) == ruled_cut(151_936, 4096, 512, Kind.PLAIN) is not None
    assert wide_cut(8192, 5120, 128, Kind.GATES) is None, "tiles gate no rows"


@each("weight", [(960, 576, Kind.PLAIN), (576, 576, Kind.ADDED), (3072, 576, Kind.GATED), (576, 1536, Kind.ADDED)])
def test_small_weights_are_cut_for_more_rows_and_by_few_tilings(weight: tuple[int, int, Kind]) -> None:
    """SmolLM2's: a launch of the library and one of what follows take longer than its products."""
    lines, depth, kind = weight
    assert all(wide_cut(lines, depth, rows, kind) for rows in range(65, 1025))
    assert len({wide_cut(lines, depth, rows, kind) for rows in range(129, 1025)}) <= 6
    assert wide_cut(lines, depth, 1025, kind) is None and wide_cut(256, depth, 256, Kind.PLAIN) is None
