"""A ruled request slows those beside it by two in a hundred at most, and captures nothing (ADR 0027)."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.bench.gpu.ruled import SLOWER, measured, sizes
from tests.kernels.gpu.devices import INTERPRETED

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")


def test_a_ruled_request_slows_no_other() -> None:
    with tempfile.TemporaryDirectory(prefix="pl") as folder:
        found = measured(sizes(tiny=False), Path(folder))
    print(found)
    assert found.rounds > 100
    assert found.captured == 0
    assert found.ratio <= SLOWER
