"""What may compute a product of a layer, and how this process serves one such choice in place of the tables'."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from unittest import mock

from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.persistent import wide
from services.common.kernels.linear.persistent.tiling import PersistentTiling
from tests.bench.gpu.products.cases import Case
from tests.bench.gpu.products.wide import wide_tilings

Cut = PersistentTiling | None
"""A tiling of ours; None is the library."""
KINDS = {
    "qkv": (Kind.PLAIN,), "o": (Kind.ADDED, Kind.PLAIN), "gate_up": (Kind.GATED,), "down": (Kind.ADDED, Kind.PLAIN)
}  # fmt: skip
"""What may follow each product. A plain one in front of a sum has its norm begun by a launch of its own."""


def choices_of(case: Case) -> dict[str, Cut]:
    """Return what may compute a product, by name: the library, and listed tilings."""
    listed: dict[str, Cut] = {f"{case.name}: library": None}
    return listed | {
        f"{case.name}: {told(tiling)}": tiling for tiling in wide_tilings(case.name, case.rows, case.hidden)
    }


def told(tiling: PersistentTiling) -> str:
    """A tiling in short: rows by lines, what follows, and what clusters share."""
    clusters = (tiling.share, "lines"), (tiling.across, "rows")
    shared = [f"{count} share {what}" for count, what in clusters if count > 1]
    return ", ".join([f"{tiling.rows} x {tiling.band}", tiling.kind.name.lower(), *shared])


@contextmanager
def serving(cases: Mapping[Case, Cut]) -> Iterator[None]:
    """Let products be computed by these cuts; what is captured meanwhile keeps them."""
    tilings: dict[tuple[int, int, Kind], dict[int, PersistentTiling | None]] = {}
    for case, cut in cases.items():
        for kind in KINDS[case.name]:
            key = case.outputs, case.depth, kind
            # Up to the row count before, what has served so far still does.
            before = {case.rows - 1: wide.wide_cut(case.outputs, case.depth, case.rows - 1, kind)}
            own = cut if cut is not None and cut.kind == kind else None
            tilings[key] = before | wide.MEASURED.get(key, {}) | {case.rows: own}
    with mock.patch.dict(wide.MEASURED, tilings):
        yield
