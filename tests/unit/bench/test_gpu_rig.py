"""Single steps are timed on real numbers: drafters read published tables, no two rows are alike, nothing is zero."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from services.common.pair import attach
from services.target.device.shapes import PackShape
from tests.bench.gpu.burst import burst_rows
from tests.bench.gpu.rig import Rig, RigSettings
from tests.bench.gpu.shapes import TINY
from tests.bench.gpu.steps import read_bandwidth

ROWS, CONTEXT, WIDTH = 2, 40, 4


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    settings = RigSettings(TINY, "cpu", "float32", ROWS, (1, WIDTH), 512, 1 << 28, 16)
    made = Rig(settings, Path(tmp_path_factory.mktemp("rig")))
    made.seat(ROWS, CONTEXT, room=64)
    yield made
    made.worker.close()


def test_the_table_that_a_drafter_reads_holds_every_block(rig: Rig) -> None:
    rig.worker.runner.publish()
    published_SN, own_SN = rig.worker.arena.tensor(attach.BLOCK_TABLE), rig.pool.state.block_table_SN
    assert torch.equal(published_SN, own_SN)
    blocks = published_SN[:ROWS, : -(-CONTEXT // 16)].flatten().tolist()
    assert 0 not in blocks
    assert len(set(blocks)) == len(blocks)


def test_no_key_and_no_value_is_zero(rig: Rig) -> None:
    for kv in (*rig.pool.states.tensors, rig.pool.draft_kv):
        assert bool((kv[:, :, 1:] != 0).all())


def test_rows_differ_and_their_drafts_count(rig: Rig) -> None:
    rig.worker.runner.publish()
    step = rig.steps.verify(ROWS, WIDTH, "greedy")
    rig.steps.graphs.replay(("verify", ROWS, WIDTH, "greedy"))
    assert step.result.drafted_B.tolist() == [WIDTH - 1] * ROWS
    logits_RV = step.logits_BWV.flatten(0, 1)
    assert bool(logits_RV.isfinite().all())
    assert len({tuple(row) for row in logits_RV.tolist()}) == ROWS * WIDTH


def test_sequences_never_share_blocks(rig: Rig) -> None:
    with pytest.raises(AssertionError, match="share blocks"):
        rig.seat(ROWS, 10_000_000)


def test_the_floor_is_what_reading_takes(rig: Rig) -> None:
    assert read_bandwidth(rig, 1 << 16) > 0


def test_a_burst_is_timed_beside_the_packs_that_it_ran(rig: Rig) -> None:
    *packs, burst = burst_rows(rig, prompts=4, length=20)
    assert [PackShape(row["segments"], row["width"]) for row in packs] == list(rig.pool.settings.packs)
    assert all(row["us"] > 0 and row["products_us"] > 0 for row in packs)
    assert burst["packs_us"] > 0 and burst["host_ms"] > 0
    assert 0 < burst["first_token_ms"]["p50"] <= burst["first_token_ms"]["p99"] <= round(burst["seconds"] * 1e3, 1)
    assert sum(segments * width for segments, width in burst["packs"]) >= 4 * 20
