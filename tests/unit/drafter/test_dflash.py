"""The dflash proposer over an arena: equal to the block alone, whatever the batch and the padding hold (I3)."""

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch
from torch import Tensor

from services.common.device.graph import StepGraphs
from services.common.device.noise import gumbel
from services.common.kernels.span_attention import plan_context
from services.common.model import DraftBlock, load_block
from services.common.model.drafters import coupling
from services.common.model.files.manifest import write_manifest
from services.common.pair import attach
from services.common.pair.turns import DRAWN
from services.drafter.arena_view import ArenaView
from services.drafter.attachment import DraftRunner
from services.drafter.handoff.host import HostHandoff
from services.drafter.proposers.checkpoint import CheckpointProposer
from tests.support.fakes_arena import SHAPE, SLOTS, FakeArena, fake_arena
from tests.support.tiny_checkpoints import write_tiny
from tests.unit.common.model.pairs import block_ids, one_span

SEED = 5
BLOCKS = 1 + SLOTS * SHAPE.max_blocks
BLOCK_SIZE = 16


@pytest.fixture(scope="module")
def block(tmp_path_factory: pytest.TempPathFactory) -> DraftBlock:
    pair = write_tiny(tmp_path_factory.mktemp("pair"), seed=SEED)
    return load_block(pair.drafter, dtype=torch.float64)


@pytest.fixture
def weighted(folder: Path, block: DraftBlock) -> Iterator[FakeArena]:
    spec, random = block.spec, torch.Generator().manual_seed(SEED)
    embed_VD = torch.randn(320, spec.hidden_size, generator=random, dtype=torch.float64)
    shape = (len(spec.layers), 2, BLOCKS, BLOCK_SIZE, spec.attention.kv_heads, spec.attention.head_dim)
    context = torch.randn(shape, generator=random, dtype=torch.float64)
    with fake_arena(folder / "side", embed_VD, context, block.revision) as fake:
        for slot, length in enumerate((3, 17, 40, 64)):
            owned = range(1 + slot * SHAPE.max_blocks, 1 + (slot + 1) * SHAPE.max_blocks)
            fake.put(slot, [(slot * 50 + place) % 320 for place in range(length)], epoch=slot + 1, blocks=owned)
        yield fake


def _pacer(fake: FakeArena, block: DraftBlock) -> DraftRunner:
    shared = ArenaView.of(fake.arena, BLOCK_SIZE)
    proposer = CheckpointProposer(block, torch.float64)
    proposer.check(shared)
    pacer = DraftRunner(shared, proposer, 1, StepGraphs("cpu"), HostHandoff(torch.device("cpu")))
    pacer.warm_up((1, 2, 4), (4, 8))
    return pacer


def _alone(fake: FakeArena, block: DraftBlock, slot: int, context: Tensor) -> list[int]:
    """The block over private copies of one slot's state."""
    table_1N = fake.arena[attach.BLOCK_TABLE][slot : slot + 1].clone()
    length_1 = fake.arena[attach.LENGTH][slot : slot + 1].clone()
    span = plan_context(table_1N, length_1, block.spec.block_size, BLOCK_SIZE)
    embed_VD = fake.arena[attach.EMBED].clone()
    anchor_1 = fake.arena[attach.ANCHOR][slot : slot + 1].clone()
    ids_1W = block_ids(block, anchor_1)
    return [int(token) for token in block.propose(ids_1W, one_span(span), context, embed_VD, embed_VD)[0]]


@pytest.mark.parametrize("rows", [[2], [1, 0], [3, 0, 2], [0, 1, 2, 3]])
@pytest.mark.parametrize("width", [4, 8])
def test_a_batch_drafts_what_each_row_drafts_alone(
    weighted: FakeArena, block: DraftBlock, rows: list[int], width: int
) -> None:
    bucket = {1: 1, 2: 2}.get(len(rows), 4)
    weighted.rows(rows, bucket)
    _pacer(weighted, block).draft(9, bucket, width)
    context = weighted.arena[attach.DRAFT_KV].clone()
    for slot in rows:
        assert weighted.drafts(slot, width - 1) == _alone(weighted, block, slot, context)[: width - 1]
        assert weighted.tag(slot) == (9, slot + 1, 1)


def test_a_drafter_that_slides_drafts_what_each_row_drafts_alone(weighted: FakeArena, folder: Path) -> None:
    """One length is within its window, one ends it, two are beyond."""
    slides = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 18, "use_sliding_window": True}
    block = load_block(write_tiny(folder / "slides", seed=SEED, drafter=slides).drafter, dtype=torch.float64)
    weighted.rows([0, 1, 2, 3], bucket=4)
    _pacer(weighted, block).draft(1, 4, 8)
    context = weighted.arena[attach.DRAFT_KV].clone()
    for slot in range(4):
        assert weighted.drafts(slot, 7) == _alone(weighted, block, slot, context)


def test_only_its_own_context_matters(weighted: FakeArena, block: DraftBlock) -> None:
    expected = _alone(weighted, block, 1, weighted.arena[attach.DRAFT_KV].clone())
    pacer = _pacer(weighted, block)
    owned = weighted.arena[attach.BLOCK_TABLE][1, :1].long()
    kept = weighted.arena[attach.DRAFT_KV][:, :, owned].clone()
    weighted.arena[attach.DRAFT_KV].fill_(float("nan"))
    weighted.arena[attach.DRAFT_KV][:, :, owned] = kept
    weighted.rows([1], bucket=4)
    pacer.draft(1, 4, 8)
    assert weighted.drafts(1, 7) == expected


def test_one_position_of_context_does_matter(weighted: FakeArena, block: DraftBlock) -> None:
    context = weighted.arena[attach.DRAFT_KV].clone()
    expected = _alone(weighted, block, 1, context)
    block_id = int(weighted.arena[attach.BLOCK_TABLE][1, 0])
    context[:, :, block_id, 15] *= -5
    assert _alone(weighted, block, 1, context) != expected


def test_it_drafts_in_the_whole_context_of_its_target(weighted: FakeArena, folder: Path, block: DraftBlock) -> None:
    """A drafter that was trained for 16 positions computes the others as one trained for 2,048 does."""
    short = write_tiny(folder / "short", seed=SEED).drafter
    config = short / "config.json"
    config.write_text(config.read_text().replace('"max_position_embeddings": 2048', '"max_position_embeddings": 16'))
    write_manifest(short)
    weighted.rows([0, 1, 2, 3], bucket=4)
    context = weighted.arena[attach.DRAFT_KV].clone()
    _pacer(weighted, load_block(short, dtype=torch.float64)).draft(1, 4, 8)
    for slot in range(4):
        assert weighted.drafts(slot, 7) == _alone(weighted, block, slot, context)


@pytest.mark.parametrize(
    ("embed", "context", "message"),
    [
        (None, None, "no embedding"),
        (torch.zeros(8, 33, dtype=torch.float64), torch.zeros(1, 2, 1, 16, 1, 1), "33 wide"),
        (torch.zeros(8, 32), torch.zeros(2, 2, 1, 16, 2, 16), "float32"),
        (torch.zeros(8, 32, dtype=torch.float64), torch.zeros(1, 2, 1, 16, 1, 1, dtype=torch.float64), "has shape"),
    ],
)
def test_an_arena_made_for_another_drafter_is_refused(
    folder: Path, block: DraftBlock, embed: Tensor | None, context: Tensor | None, message: str
) -> None:
    with fake_arena(folder / "side", embed, context) as fake:
        shared = ArenaView.of(fake.arena, BLOCK_SIZE)
        with pytest.raises(ValueError, match=message):
            CheckpointProposer(block, torch.float64).check(shared)


def test_a_short_block_is_taken_where_the_checkpoint_has_seen_it(weighted: FakeArena, block: DraftBlock) -> None:
    shared, rows_B = ArenaView.of(weighted.arena, BLOCK_SIZE), torch.tensor([0, 1, 3])

    def drafts(sizes: tuple[int, ...], width: int, short: bool = False) -> list[list[int]]:
        seen = copy(block)
        seen.spec = replace(block.spec, short_sizes=sizes)
        proposer = CheckpointProposer(seen, torch.float64, short)
        proposer.check(shared)
        return cast("list[list[int]]", proposer.propose(shared, rows_B, width).tolist())

    assert drafts((4,), 4) == drafts((), 4, short=True) != drafts((), 4)
    assert drafts((4,), 5) == drafts((), 5)


def test_sampled_rows_draft_with_the_noise_that_the_target_draws_with(weighted: FakeArena, block: DraftBlock) -> None:
    shared = ArenaView.of(weighted.arena, BLOCK_SIZE)
    held = 24
    random = torch.Generator().manual_seed(SEED)
    noise_TV = torch.randn((SLOTS + 1) * held, 320, generator=random, dtype=torch.float64) * 1e6
    temperature_S = torch.zeros(SLOTS + 1)
    temperature_S[1] = 0.8
    coupled = replace(shared, noise_TV=noise_TV, temperature_S=temperature_S)
    proposer, rows_B = CheckpointProposer(block, torch.float64), torch.tensor([0, 1])
    proposer.check(shared)
    plain_BK, drawn_BK = proposer.propose(shared, rows_B, 4), proposer.propose(coupled, rows_B, 4)
    first = int(shared.length_S[1]) + 1
    expected_K = [int(noise_TV[held + (first + j) % held].argmax()) for j in range(3)]
    assert drawn_BK[1].tolist() == expected_K, "noise this loud decides alone"
    assert drawn_BK[0].tolist() == plain_BK[0].tolist(), "a greedy row takes no part"


def test_rounds_that_draw_have_steps_of_their_own_where_seeds_are(
    weighted: FakeArena, block: DraftBlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coupling, "SEEDED", (block.spec.kind,))
    seeds_S, heat_S = torch.arange(SLOTS + 1) * 1001, torch.zeros(SLOTS + 1)
    heat_S[1] = 50.0  # so hot that the noise alone decides
    shared = replace(ArenaView.of(weighted.arena, BLOCK_SIZE), draw_seed_S=seeds_S, temperature_S=heat_S)
    proposer = CheckpointProposer(block, torch.float64)
    proposer.check(shared)
    pacer = DraftRunner(shared, proposer, 1, StepGraphs("cpu"), HostHandoff(torch.device("cpu")))
    pacer.warm_up((2,), (4,))
    assert pacer.counters.captures == 2
    weighted.rows([1, 2], 2)
    context = weighted.arena[attach.DRAFT_KV].clone()
    plain = {slot: _alone(weighted, block, slot, context)[:3] for slot in (1, 2)}
    pacer.draft(1, 2, 4)
    assert {slot: weighted.drafts(slot, 3) for slot in (1, 2)} == plain
    pacer.draft(2, 2, 4, DRAWN)
    first = int(shared.length_S[1]) + 1
    noise_1KV = gumbel(seeds_S[1:2], torch.arange(first, first + 3)[None], 320)
    assert weighted.drafts(1, 3) == noise_1KV[0].argmax(-1).tolist() != plain[1]
    assert weighted.drafts(2, 3) == plain[2], "a greedy row takes no part"
