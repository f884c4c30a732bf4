"""Trees of drafts, and chains of any lengths, under kills of a side: what F1 and F4 judge of chains of one length."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.faults import test_drafter_lost, test_target_lost
from tests.faults.any_rows_target import DRAWN
from tests.faults.conftest import Size
from tests.faults.fleet import running_fleet
from tests.faults.test_drafter_lost import test_f1_drafters_killed_under_live_streams as kill_drafters
from tests.faults.test_target_lost import test_f4_targets_killed_under_live_streams as kill_targets

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.whole, pytest.mark.timeout(1500)]
MODULE = "tests.faults.any_rows_target"
KINDS = {
    "Tree": ("--nodes", "true", "--widths", "1,4,8,16"),
    "Ragged": ("--ragged", "true", "--widths", "1,4,8"),
}
STREAMS = 24
"""Of two pairs: so that many requests share the rows of a round."""


@pytest.mark.parametrize("kind", KINDS)
async def test_kills_of_either_side_where_rounds_have_any_form(
    kind: str,
    rng: random.Random,
    size: Size,
    report_counts: Callable[[str, int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (test_drafter_lost, test_target_lost):
        monkeypatch.setattr(module, "STREAMS", STREAMS)
    flags = ("--slots", str(STREAMS), "--adaptive", "true", *KINDS[kind])
    async with running_fleet(2, flags, alike=True, module=MODULE) as fleet:
        for pair in fleet.pairs.values():
            told = next(line for line in pair.target.log.read_text().splitlines() if DRAWN in line)
            assert kind in told
        await fleet.warm_up()
        await kill_drafters(fleet, rng, size, report_counts)
        await kill_targets(fleet, rng, size, report_counts)
