"""Prefix hits: what may be shared, what may not, and what goes first when blocks run short."""

import pytest

from services.target.cache.blocks import BlockPool, OutOfBlocksError
from services.target.cache.prefix_cache import PrefixCache
from services.target.cache.snapshots import SnapshotPool
from tests.unit.target.scheduling.scheduling import BLOCK, Rig, spec
from tests.unit.target.scheduling.simulated import unloaded_text

SHARED = tuple(range(10, 34))


def test_a_second_request_finds_the_first_ones_blocks() -> None:
    """Prompt and output both hit; the text is the same as cold."""
    rig = Rig()
    cold = rig.scheduler.add(spec(ids=SHARED, tokens=9), None, 0.0)
    rig.finish()
    again = rig.scheduler.add(spec(ids=SHARED, tokens=9), None, 0.0)
    turn = rig.scheduler.add(spec(ids=(*SHARED, *cold.output, 5, 6), tokens=9), None, 0.0)
    rig.finish()
    assert (cold.cached_tokens, again.cached_tokens, turn.cached_tokens) == (0, 20, 32)
    assert again.output == cold.output and turn.output == unloaded_text(turn.spec, 64)[0]
    assert rig.cache is not None and rig.cache.hit_tokens == 52


def test_a_hit_never_covers_the_whole_prompt() -> None:
    """A prompt of whole blocks still computes its last block, for its logits."""
    rig = Rig()
    for _ in range(2):
        request = rig.scheduler.add(spec(ids=SHARED[: 4 * BLOCK], tokens=1), None, 0.0)
        rig.finish()
    assert request.cached_tokens == 3 * BLOCK


def test_a_hit_owns_blocks_for_its_first_drafts_beyond_the_shared_ones() -> None:
    """Look-ahead blocks are there before the first draft, and none of them is shared."""
    for preemption in (False, True):
        rig = Rig(preemption=preemption)
        rig.scheduler.add(spec(ids=SHARED, tokens=9), None, 0.0)
        rig.finish()
        hit = rig.scheduler.add(spec(ids=SHARED, tokens=9), None, 0.0)
        plan, _ = rig.round()
        admission = plan.admissions[0]
        fresh = admission.blocks[admission.cached // BLOCK :]
        assert len(admission.blocks) * BLOCK >= len(SHARED) + 4
        assert all(rig.pool.owners(block) == 1 for block in fresh) and hit.cached_tokens == 20


def test_tenants_models_and_drafters_do_not_share() -> None:
    """Each part of a block's identity separates, whichever way the bytes are cut."""
    pool = BlockPool(4, BLOCK)
    names = set()
    for model, drafter, salt in [(b"m", b"d", b"s"), (b"md", b"", b"s"), (b"m", b"d", b"t"), (b"m", b"e", b"s")]:
        chain: list[bytes] = []
        PrefixCache(pool, model, drafter).extend(chain, SHARED[:BLOCK], salt)
        names.add(chain[0])
    assert len(names) == 4 and all(len(name) == 32 for name in names)


def test_a_name_depends_on_everything_before_it() -> None:
    """The same tokens after another beginning are another block; a partial block has no name."""
    cache = PrefixCache(BlockPool(4, BLOCK), b"m", b"d")
    one: list[bytes] = []
    other: list[bytes] = []
    cache.extend(one, (1, 2, 3, 4, 9, 9, 9, 9, 7), b"")
    cache.extend(other, (1, 2, 3, 5, 9, 9, 9, 9), b"")
    assert len(one) == len(other) == 2 and one[1] != other[1]
    cache.extend(one, (1, 2, 3, 4, 9, 9, 9, 9, 7, 7, 7, 7), b"")
    assert len(one) == 3


def test_rejected_drafts_and_unfinished_rounds_never_enter() -> None:
    """After each round the cache holds committed, computed blocks only."""
    rig = Rig(width=8)
    request = rig.scheduler.add(spec(ids=SHARED, tokens=20), None, 0.0)
    assert rig.cache is not None
    plan = rig.scheduler.plan(0.0)
    assert len(rig.cache) == 0
    rig.scheduler.commit(plan, rig.device.execute(plan, 0), 0.0)
    while rig.scheduler.live():
        rig.round(matched=1)
        assert len(rig.cache) == request.computed // BLOCK or not request.blocks


def test_the_least_recently_used_go_first_and_tails_before_heads() -> None:
    """Eviction takes the older sequence, from its end."""
    pool = BlockPool(6, BLOCK)
    cache = PrefixCache(pool, b"m", b"d")
    chains: list[list[bytes]] = []
    for base in (0, 100):
        blocks = pool.take(3)
        chain: list[bytes] = []
        cache.extend(chain, range(base, base + 3 * BLOCK), b"")
        for name, block in zip(chain, blocks, strict=True):
            cache.insert(name, block)
        pool.release(blocks, 0)
        chains.append(chain)
    pool.take(2)
    assert [len(cache.match(chain, 100).blocks) for chain in chains] == [1, 3]
    pool.take(2)
    assert [len(cache.match(chain, 100).blocks) for chain in chains] == [0, 2]
    assert cache.evictions == 4
    pool.check()
    cache.check()


def test_a_block_that_was_computed_again_takes_the_name_of_an_idle_one() -> None:
    """So a text in use is not evicted for the age of its first copy; an owned copy keeps its name."""
    pool, chain = BlockPool(6, BLOCK), list[bytes]()
    cache = PrefixCache(pool, b"m", b"d")
    cache.extend(chain, range(2 * BLOCK), b"")
    copies = [pool.take(2) for _ in range(3)]
    for blocks, released in zip(copies, (copies[0], [], []), strict=True):
        for name, block in zip(chain, blocks, strict=True):
            cache.insert(name, block)
        pool.release(released, 0)
    assert cache.match(chain, 100).blocks == copies[1]
    assert (pool.free, pool.idle, pool.owned) == (2, 0, 4)
    pool.check()
    cache.check()


def test_the_pool_refuses_misuse() -> None:
    """Too many, twice, or of what is not cached."""
    pool = BlockPool(2, BLOCK)
    with pytest.raises(OutOfBlocksError):
        pool.take(3)
    blocks = pool.take(2)
    with pytest.raises(ValueError, match="not cached"):
        pool.share(blocks)
    pool.release(blocks, 0)
    with pytest.raises(ValueError, match="more often"):
        pool.release(blocks, 0)
    with pytest.raises(ValueError, match="at least one block"):
        BlockPool(0, BLOCK)


def test_released_blocks_wait_for_their_fence() -> None:
    """Round 3 may still touch them, so only the end of round 3 frees them."""
    pool = BlockPool(4, BLOCK)
    blocks = pool.take(4)
    pool.release(blocks, 3)
    assert pool.available == 0 and pool.coming == 4
    pool.fence(2)
    assert pool.available == 0
    pool.fence(3)
    assert pool.available == 4 and pool.coming == 0


def test_a_hit_of_a_recurrent_model_ends_where_a_snapshot_is() -> None:
    """Blocks behind the last snapshot are known, and of no use; without any there is no hit."""
    pool, snapshots = BlockPool(6, BLOCK), SnapshotPool(2, BLOCK)
    cache = PrefixCache(pool, b"m", b"d", snapshots)
    chain: list[bytes] = []
    cache.extend(chain, range(5 * BLOCK), b"")
    blocks = pool.take(5)
    for name, block in zip(chain, blocks, strict=True):
        cache.insert(name, block)
    assert cache.match(chain, 100) == ([], 5)
    snapshots.take(chain[1])
    assert cache.match(chain, 100) == (blocks[:2], 5)
    snapshots.take(chain[3])
    assert cache.match(chain, 100) == (blocks[:4], 5)
    assert cache.match(chain, 4 * BLOCK) == (blocks[:2], 3)


def test_a_snapshot_goes_with_its_block() -> None:
    """Nothing could find it: the chain ends before it."""
    pool, snapshots = BlockPool(2, BLOCK), SnapshotPool(2, BLOCK)
    cache = PrefixCache(pool, b"m", b"d", snapshots)
    chain: list[bytes] = []
    cache.extend(chain, range(2 * BLOCK), b"")
    blocks = pool.take(2)
    for name, block in zip(chain, blocks, strict=True):
        cache.insert(name, block)
        snapshots.take(name)
    pool.release(blocks, 0)
    pool.take(1)
    assert snapshots.names == {chain[0]}, "the tail goes first"
    assert (snapshots.held, snapshots.free, snapshots.evictions) == (1, 1, 1)
