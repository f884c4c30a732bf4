"""Every kind of drafter under kills of a side: what F1 and F4 judge of the usual pair, of pairs of each kind."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.conftest import Size
from tests.faults.fleet import running_fleet
from tests.faults.test_drafter_lost import test_f1_drafters_killed_under_live_streams as kill_drafters
from tests.faults.test_target_lost import test_f4_targets_killed_under_live_streams as kill_targets
from tests.support.tiny_kinds import PAIRS

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.whole, pytest.mark.timeout(1500)]


@pytest.mark.parametrize("kind", sorted(PAIRS))
async def test_kills_of_either_side(
    kind: str, tmp_path: Path, rng: random.Random, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    models = PAIRS[kind](tmp_path, 5)
    async with running_fleet(2, ("--slots", "16"), alike=True, models=models) as fleet:
        assert fleet.pairs[0].describe().drafter.proposer == kind.partition("-")[0]
        await fleet.warm_up()
        await kill_drafters(fleet, rng, size, report_counts)
        await kill_targets(fleet, rng, size, report_counts)
