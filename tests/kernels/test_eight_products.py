"""Own products in tiles: what is cut fits a multiprocessor, and where the programs in Triton and the library stay."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from services.common.kernels.linear import Normed, int8_kernel
from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.int8_kernel import eight_tiling
from services.common.kernels.linear.int8_weight import quantised, quantised_rows
from services.common.kernels.linear.persistent import eight, wide
from services.common.kernels.linear.persistent import tiling as tilings
from services.common.kernels.linear.persistent.eight import MEASURED, eight_cut
from services.common.kernels.linear.persistent.grouped import GROUP, grouped_cut
from services.common.kernels.linear.persistent.rule import ruled_cut
from services.common.kernels.linear.persistent.tiling import PersistentTiling, few_cut
from services.common.kernels.linear.tiling import Int8Cut, int8_cut
from tests.bench.gpu.int8.eight import CTA_BYTES, PROCESSOR_BYTES, SHARED_BYTES, everything
from tests.bench.gpu.products import wide as wide_candidates
from tests.support.cases import each

PROCESSORS, REGISTERS, WARP, TAKEN = 132, 65_536, 32, 240
WIDTHS, WIDE_WIDTHS = (*range(8, 25, 8), *range(32, 257, 16)), tuple(range(8, 257, 8))
"""Lines that a matrix instruction of whole numbers, and of bfloat16, can have."""
SOME, MORE = PersistentTiling(128, 48, 1, 4), PersistentTiling(256, 96, 1, 4)
SUMMED = PersistentTiling(64, 40, 2, 4, Kind.ADDED)
WIDE, SHARED = (
    PersistentTiling(128, 192, 1, 4, wide=True),
    PersistentTiling(128, 96, 1, 4, across=4, wide=True),
)
TABLES = (MEASURED, wide.MEASURED)
CUTS = [(*weight, cut) for table in TABLES for weight, cuts in table.items() for cut in cuts.values() if cut]
FEW = [
    (lines, depth, kind, few_cut(lines, depth, rows, kind, is_wide))
    for lines, depth, kind in (
        (6144, 2560, Kind.PLAIN), (12352, 2560, Kind.PLAIN), (16480, 5120, Kind.PLAIN), (151936, 2560, Kind.PLAIN),
        (2560, 4096, Kind.ADDED), (2560, 9728, Kind.ADDED), (5120, 17408, Kind.ADDED), (132, 128, Kind.ADDED),
        (1024, 4096, Kind.PLAIN), (2048, 2048, Kind.PLAIN), (3072, 4096, Kind.PLAIN),
        (19456, 2560, Kind.GATED), (18432, 2560, Kind.GATED), (34816, 5120, Kind.GATED), (32, 128, Kind.GATED),
    )
    for is_wide, rows in ((False, 64), (True, 48), (True, 64))
]  # fmt: skip
GROUPED = [
    (lines, depth, kind, cut)
    for lines, depth, kind in (
        (6144, 4096, Kind.PLAIN), (4096, 4096, Kind.ADDED), (4096, 12288, Kind.ADDED), (24576, 4096, Kind.GATED),
        (10240, 5120, Kind.PLAIN), (5120, 25600, Kind.ADDED), (51200, 5120, Kind.GATED), (2560, 640, Kind.ADDED),
    )
    for rows in (1, 64, 65, 128, 129, 256, 512, 4096)
    if (cut := grouped_cut(lines, depth, rows, kind))
]  # fmt: skip
LISTED = list(
    dict.fromkeys(
        [
            *(cut for *_, cut in GROUPED),
            *everything(),
            *wide_candidates.everything(),
            *(cut for *_, cut in (*CUTS, *FEW)),
        ]
    )
)


@each("own", LISTED)
def test_a_tiling_fits_a_multiprocessor(own: PersistentTiling) -> None:
    assert own.shared_bytes <= SHARED_BYTES
    assert own.shared_bytes + CTA_BYTES <= PROCESSOR_BYTES
    assert own.lines in (WIDE_WIDTHS if own.wide else WIDTHS)
    assert own.halves * own.band <= own.lines
    assert own.band % (4 // own.halves) == 0
    # A thread holds half as many sums as lines, of groups those of a stage too; a quarter of a multiprocessor has a
    # quarter of warps and registers, but for those that a loading warpgroup gives up.
    if own.grouped and own.rows > 64:
        assert (own.subs + 1) * own.lines // 2 + 48 <= TAKEN
        return
    parts = -(-own.threads // (4 * WARP))
    assert own.lines * (1 + own.grouped * own.subs) // 2 + 24 <= REGISTERS // 4 // WARP // parts


@each("own", LISTED)
@each(("rows", "outputs"), [(65, 74112), (128, 2560), (300, 6144), (2048, 9728)])
def test_tiles_cover_all_rows_and_lines_and_as_many_run_as_fit(own: PersistentTiling, rows: int, outputs: int) -> None:
    tiles, (ctas, _) = own.tiles(rows, outputs), own.grid(rows, outputs, PROCESSORS)
    assert ctas % own.cluster == 0
    # Clusters of more than two find no room in what a group of multiprocessors has more than sixteen.
    assert ctas == min(tiles * own.cluster, PROCESSORS if own.cluster <= 2 else 128)
    height = own.height(rows)
    assert height <= own.rows
    assert height % (8 * own.across) == 0
    assert tiles * height * own.share * own.band * own.across >= rows * outputs
    if own.line_box != own.band:
        assert own.line_box * own.share * own.halves == own.lines
        assert own.line_box % 8 == 0


@each(("lines", "depth", "kind", "cut"), CUTS + FEW)
def test_a_measured_cut_is_of_its_weight(lines: int, depth: int, kind: Kind, cut: PersistentTiling) -> None:
    assert cut.kind == kind
    assert depth % cut.depth == 0
    assert lines % (4 * cut.halves) == 0


@each(("lines", "depth", "kind", "cut"), GROUPED)
def test_codes_in_groups_are_cut_where_scales_begin(lines: int, depth: int, kind: Kind, cut: PersistentTiling) -> None:
    assert cut.kind == kind
    assert depth % (cut.subs * GROUP) == 0
    assert cut.band * cut.halves % 16 == 0
    assert cut.band <= GROUP
    assert cut.stages >= 3


def test_a_weight_without_whole_groups_is_not_cut() -> None:
    assert grouped_cut(4096, 4000, 8, Kind.PLAIN) is None
    assert grouped_cut(4100, 4096, 8, Kind.PLAIN) is None
    assert grouped_cut(2 * 4032, 4096, 8, Kind.GATED) is None


@each(("lines", "depth", "kind", "cut"), FEW)
def test_all_multiprocessors_get_about_as_much_of_a_weight_for_few_rows(
    lines: int, depth: int, kind: Kind, cut: PersistentTiling
) -> None:
    tiles, (ctas, _) = cut.tiles(48, lines // cut.halves) * cut.cluster, cut.grid(48, lines // cut.halves, PROCESSORS)
    assert ctas == min(tiles, PROCESSORS)
    waves = -(-tiles // PROCESSORS)
    share = 0.93 if cut.cluster == 1 else 0.8
    halved = cut.wide and cut.halves == 1 and lines <= 16 * PROCESSORS
    if not halved:
        assert tiles >= share * waves * PROCESSORS or cut.band <= 8 // cut.halves, "but for the least of bands"
    # As much is under way as fits, in stages that are not too short.
    assert cut.stages == 16 or cut.shared_bytes + cut.subs * (64 + cut.lines) * 128 > SHARED_BYTES - 1024


@pytest.mark.parametrize(("rows", "height"), [(5, 8), (48, 48), (64, 64), (65, 40), (96, 48), (128, 64), (200, 56)])
def test_tiles_share_out_the_rows_that_there_are(rows: int, height: int) -> None:
    """So that the copy engine is asked for none that there are not."""
    assert few_cut(2560, 4096, 48, Kind.ADDED, wide=True).height(rows) == height


def test_whole_tiles_of_rows_are_shared_where_a_band_has_few_lines() -> None:
    cuts = [few_cut(2560, 9728, rows, Kind.ADDED, wide=True) for rows in (48, 63, 64)]
    assert [(cut.band, cut.across) for cut in cuts] == [(20, 1), (20, 1), (24, 4)]
    assert few_cut(2560, 9728, 64, Kind.ADDED, wide=False).across == 1


@pytest.mark.parametrize("rows", [17, 48, 64])
@pytest.mark.parametrize(
    ("lines", "depth", "band", "subs"),
    [(512, 2048, 16, 4), (1024, 4096, 16, 4), (1024, 4032, 16, 1), (1280, 5120, 32, 2), (2112, 4096, 32, 2)],
)
def test_few_lines_have_half_as_many_ctas_in_longer_stages(
    rows: int, lines: int, depth: int, band: int, subs: int
) -> None:
    """More CTAs would all take in the same rows, and four that load them for one another found no room at once."""
    cut = few_cut(lines, depth, rows, Kind.PLAIN, wide=True)
    assert (cut.band, cut.across, cut.subs) == (band, 1, subs)
    assert cut.tiles(rows, lines) <= PROCESSORS // 2


def test_clusters_that_would_take_two_turns_are_not_made() -> None:
    assert few_cut(2688, 4096, 64, Kind.PLAIN, wide=True).across == 4
    assert few_cut(2692, 4096, 64, Kind.PLAIN, wide=True).across == 1


@pytest.mark.parametrize("rows", [17, 33, 64])
def test_few_rows_that_skinny_products_do_not_take_are_cut_by_a_rule(rows: int) -> None:
    assert wide.wide_cut(151936, 2560, rows, Kind.PLAIN) == few_cut(151936, 2560, rows, Kind.PLAIN, wide=True)
    assert wide.wide_cut(4096, 2560, rows, Kind.GATES) is None
    assert eight_cut(2560, 4096, rows, Kind.ADDED) == few_cut(2560, 4096, rows, Kind.ADDED, wide=False)


@each("name", ["qkv", "o", "gate_up", "down"])
@each("rows", wide_candidates.ROWS)
def test_candidates_in_bfloat16_are_of_their_product(name: str, rows: int) -> None:
    depth = {"o": 4096, "down": 9728}.get(name, 2560)
    found = wide_candidates.wide_tilings(name, rows)
    assert len(found) > 2
    assert all(cut.wide and depth % cut.depth == 0 for cut in found)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of a few cuts."""
    head = {512: SOME}
    table = {
        (6144, 2560, Kind.PLAIN): {512: MORE, 128: SOME}, (tilings.HEAD_LINES, 2560, Kind.PLAIN): head,
        (2560, 4096, Kind.ADDED): {1024: SUMMED}, (2558, 4096, Kind.PLAIN): head, (2560, 4000, Kind.PLAIN): head,
        (6146, 2560, Kind.GATED): head,
    }  # fmt: skip
    monkeypatch.setattr(eight, "MEASURED", table)


@pytest.mark.usefixtures("measured")
def test_the_cut_of_the_fewest_measured_rows_serves() -> None:
    found = {rows: eight_cut(6144, 2560, rows, Kind.PLAIN) for rows in (65, 128, 129, 512, 513)}
    ruled = ruled_cut(6144, 2560, 513, Kind.PLAIN, wide=False)
    assert ruled is not None
    assert found == {65: SOME, 128: SOME, 129: MORE, 512: MORE, 513: ruled}


@pytest.mark.usefixtures("measured")
def test_pieces_of_a_head_are_cut_alike() -> None:
    assert all(eight_cut(lines, 2560, 120, Kind.PLAIN) == SOME for lines in (151936, 77824, 74112, 28672))


@pytest.mark.usefixtures("measured")
def test_a_rule_cuts_weights_that_no_table_has() -> None:
    for kind, rows in ((Kind.PLAIN, 120), (Kind.PLAIN, 4096), (Kind.GATED, 513), (Kind.ADDED, 256)):
        assert eight_cut(19456, 2560, rows, kind) == ruled_cut(19456, 2560, rows, kind, wide=False) is not None
    assert eight_cut(19456, 2560, 257, Kind.ADDED) is None


@pytest.mark.usefixtures("measured")
def test_what_the_kernel_does_not_take_stays_with_triton() -> None:
    """Lines that are not stored four at a time, or two of a gated weight, and part of a swizzled row."""
    assert eight_cut(2558, 4096, 128, Kind.PLAIN) is None
    assert eight_cut(6146, 2560, 128, Kind.GATED) is None
    assert eight_cut(2560, 4000, 128, Kind.PLAIN) is None


@pytest.mark.usefixtures("measured")
def test_a_cpu_takes_none() -> None:
    weight = quantised(torch.zeros(6144, 2560, dtype=torch.bfloat16))
    assert eight_tiling(torch.zeros(128, 2560, dtype=torch.bfloat16), weight, Kind.PLAIN) is None


def test_bfloat16_stays_with_the_library_until_it_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    cuts, product = {512: WIDE, 192: None, 256: SHARED}, (6144, 2560, Kind.PLAIN)
    monkeypatch.setattr(wide, "MEASURED", {product: cuts, (2558, 4096, Kind.PLAIN): {512: WIDE}})
    found = {rows: wide.wide_cut(6144, 2560, rows, Kind.PLAIN) for rows in (16, 65, 192, 193, 256, 257, 513)}
    assert found == {16: None, 65: None, 192: None, 193: SHARED, 256: SHARED, 257: WIDE, 513: None}
    assert wide.wide_cut(2558, 4096, 256, Kind.PLAIN) is None
    assert wide.wide_cut(6144, 2560, 256, Kind.ADDED) is None


class Launches:
    """Notes what is launched, and by what."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kinds: tuple[Kind, ...]) -> None:
        """Products that end as one of the `kinds` are in the table."""
        self.by: list[object] = []
        self.ends: list[tuple[bool, ...]] = []
        monkeypatch.setattr(int8_kernel, "quantised_rows", quantised_rows)
        monkeypatch.setattr(int8_kernel, "eight_tiling", lambda _x, _w, kind: SOME if kind in kinds else None)
        monkeypatch.setattr(int8_kernel, "launch", self._cuda)
        monkeypatch.setattr(int8_kernel, "_launch_triton", lambda cut, *_: self.by.append(cut))
        monkeypatch.setattr(int8_kernel, "begin_norm", lambda product_TF, *_: self.by.append("norm"))

    def _cuda(
        self, tiling: PersistentTiling, rows: Any, weight: Any, scales: Any, ends: tuple[Any, ...], *_: float
    ) -> None:
        assert rows.dtype == weight.dtype == torch.int8 and scales[0] is WEIGHT.scale_F and len(scales[1]) == len(rows)
        self.by.append(tiling)
        self.ends.append(tuple(end is not None for end in ends))


ROWS, WEIGHT = torch.zeros(300, 128, dtype=torch.bfloat16), quantised(torch.zeros(64, 128, dtype=torch.bfloat16))
STREAM, SQUARES = torch.zeros(300, 64, dtype=torch.bfloat16), torch.zeros(300, dtype=torch.int64)


def test_a_product_is_given_what_its_end_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    launches = Launches(monkeypatch, (Kind.PLAIN, Kind.GATED, Kind.ADDED))
    int8_kernel.linear(ROWS, WEIGHT)
    assert int8_kernel.linear_gated(Normed(ROWS, SQUARES), WEIGHT, 1e-6).shape == (300, 32)
    int8_kernel.linear_added(ROWS, WEIGHT, STREAM, STREAM[0], 1e-6)
    assert launches.by == [SOME] * 3
    assert launches.ends == [
        (True, False, False, False, False, False),
        (True, False, False, False, True, False),
        (True, True, True, True, False, True),
    ]


@pytest.mark.parametrize("kinds", [(Kind.PLAIN,), ()])
def test_the_norm_of_a_sum_that_is_not_measured_is_begun_behind(
    kinds: tuple[Kind, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    launches = Launches(monkeypatch, kinds)
    int8_kernel.linear_added(ROWS, WEIGHT, STREAM, STREAM[0], 1e-6)
    assert launches.by == [SOME if kinds else int8_cut(64, 300), "norm"]


def test_a_cut_that_is_given_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    launches, triton = Launches(monkeypatch, tuple(Kind)), Int8Cut(16, 16, 32)
    int8_kernel.linear(ROWS, WEIGHT, cut=MORE)
    int8_kernel.linear(ROWS, WEIGHT, cut=triton)
    assert launches.by == [MORE, triton]
