"""What may compute a product of a layer, and how this process serves one such choice in place of the tables'."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from unittest import mock

import torch

from services.common.kernels.linear.allowed import Product
from services.common.kernels.linear.cublaslt.algorithm import Algorithm
from services.common.kernels.linear.cublaslt.binding import Library
from services.common.kernels.linear.cublaslt.problem import Problem
from services.common.kernels.linear.cuda import Kind
from services.common.kernels.linear.persistent import wide
from services.common.kernels.linear.persistent.tiling import PersistentTiling
from services.common.kernels.linear.ranked import Ranked, ranked_products
from tests.bench.gpu.products.cases import Case
from tests.bench.gpu.products.clock import GpuClock
from tests.bench.gpu.products.contest import Contest
from tests.bench.gpu.products.subject import Subject
from tests.bench.gpu.products.wide import wide_tilings

Cut = PersistentTiling | Algorithm | None
"""A tiling of ours, or an algorithm of the library; None is the one that the library's table has."""
KINDS = {
    "qkv": (Kind.PLAIN,), "o": (Kind.ADDED, Kind.PLAIN), "gate_up": (Kind.GATED,), "down": (Kind.ADDED, Kind.PLAIN)
}  # fmt: skip
"""What may follow each product. A plain one in front of a sum has its norm begun by a launch of its own."""


def choices_of(case: Case, library: Library | None, most: int) -> dict[str, Cut]:
    """Return what may compute a product, by name: the library, listed tilings, and its `most` quickest algorithms."""
    listed: dict[str, Cut] = {f"{case.name}: library": None}
    listed |= {f"{case.name}: {told(tiling)}": tiling for tiling in wide_tilings(case.name, case.rows)}
    if library is None or not most:
        return listed
    screened = Contest(Subject(library, case), GpuClock()).screened()
    quickest = sorted(screened, key=screened.__getitem__)[:most]
    return listed | {f"{case.name}: algorithm {place}": algorithm for place, algorithm in enumerate(quickest)}


def told(tiling: PersistentTiling) -> str:
    """A tiling in short: rows by lines, what follows, and what clusters share."""
    clusters = (tiling.share, "lines"), (tiling.across, "rows")
    shared = [f"{count} share {what}" for count, what in clusters if count > 1]
    later = ["later"] if tiling.later else []
    return ", ".join([f"{tiling.rows} x {tiling.band}", tiling.kind.name.lower(), *shared, *later])


@contextmanager
def serving(cases: Mapping[Case, Cut], library: Library | None, device: torch.device) -> Iterator[None]:
    """Let products be computed by these cuts; what is captured meanwhile keeps them."""
    tilings: dict[tuple[int, int, Kind], dict[int, PersistentTiling | None]] = {}
    algorithms: dict[Product, Ranked] = {}
    for case, cut in cases.items():
        for kind in KINDS[case.name]:
            key = case.outputs, case.depth, kind
            # Up to the row count before, what has served so far still does.
            before = {case.rows - 1: wide.wide_cut(case.outputs, case.depth, case.rows - 1, kind)}
            own = cut if isinstance(cut, PersistentTiling) and cut.kind == kind else None
            tilings[key] = before | wide.MEASURED.get(key, {}) | {case.rows: own}
        if isinstance(cut, Algorithm):
            assert library is not None, "an algorithm comes from a library"
            algorithms[case.product] = Ranked(Problem(library, *case.product), cut.algo)
    with mock.patch.dict(wide.MEASURED, tilings), mock.patch.dict(ranked_products(device), algorithms):
        yield
