"""GPU kernels that choose one token a row and commit the accepted ones."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="attr-defined"

import triton
import triton.language as tl

from services.common.kernels.accept.greedy import best_of_tiles
from services.common.kernels.accept.walk import holds_order, in_order, walked_path
from services.common.kernels.gumbel import gumbel_of
from services.common.kernels.pdl import allow_next, await_previous


@triton.jit
def gumbel(seed, position, first, TILE: tl.constexpr):
    """Return the noise of the TILE tokens from `first` on, as common/device/noise.py defines it."""
    return gumbel_of(seed, position, (first // 4 + tl.arange(0, TILE // 4)).to(tl.uint32))


@triton.jit
def best_kernel(
    scores_ptr, peaks_ptr, rows_ptr, floors_ptr, values_ptr, tokens_ptr, length_ptr, seed_ptr, temperature_ptr,
    depths_ptr, offsets_ptr, vocab,
    WIDTH: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write the best score of a tile and its lowest token; NaN when the tile holds NaN or +inf.

    A row draws with the noise of its position, which in a tree follows its depth, and in a piece its offset.
    """
    program, tile = tl.program_id(0), tl.program_id(1)
    at = program * tl.num_programs(1) + tile
    floor = tl.load(floors_ptr + program)
    # A tile that holds NaN or +inf has an infinite peak.
    if tl.load(peaks_ptr + at) < floor:
        tl.store(tokens_ptr + at, 2147483647)
        tl.store(values_ptr + at, float("-inf"))
        return
    token = tile * TILE + tl.arange(0, TILE)
    inside = token < vocab
    score = tl.load(scores_ptr + program.to(tl.int64) * vocab + token, mask=inside, other=float("-inf")).to(tl.float32)
    spoilt = tl.sum(((score != score) | (score == float("inf"))).to(tl.int32), 0)
    slot = tl.load(rows_ptr + program // WIDTH).to(tl.int64)
    score = tl.where(score >= floor, score, float("-inf"))
    if tl.load(temperature_ptr + slot) > 0:
        depth = program % WIDTH if depths_ptr is None else tl.load(depths_ptr + program)
        if offsets_ptr is not None:
            depth += tl.load(offsets_ptr + program // WIDTH)
        position = tl.load(length_ptr + slot) + 1 + depth
        score += gumbel(tl.load(seed_ptr + slot), position, tile * TILE, TILE)
    score = tl.where(inside & (score == score), score, float("-inf"))
    best = tl.max(score, 0)
    tl.store(tokens_ptr + at, tl.min(tl.where((score == best) & inside, token, 2147483647), 0))
    tl.store(values_ptr + at, tl.where(spoilt > 0, float("nan"), best))


@triton.jit
def _choices(
    values_ptr, choices_ptr, first, count, tiles, WIDTH_PAD: tl.constexpr, TILES_PAD: tl.constexpr
):  # fmt: skip
    """Return the chosen token of each offset below `count`, and whether it came from finite numbers."""
    offset, tile = tl.arange(0, WIDTH_PAD), tl.arange(0, TILES_PAD)
    at = (first + offset)[:, None] * tiles + tile[None, :]
    known = (offset < count)[:, None] & (tile < tiles)[None, :]
    value = tl.load(values_ptr + at, mask=known, other=float("-inf"))
    choice = tl.load(choices_ptr + at, mask=known, other=2147483647)
    spoilt, best, token = best_of_tiles(value, choice)
    return token.to(tl.int64), (spoilt == 0) & (best > float("-inf"))


@triton.jit
def commit_kernel(
    values_ptr, choices_ptr, drafts_ptr, rows_ptr,
    length_ptr, anchor_ptr, active_ptr, generated_ptr, max_tokens_ptr, limit_ptr, draft_limit_ptr, counts_ptr,
    stops_ptr, history_ptr, masked_ptr, walked_ptr, tokens_ptr, count_ptr, accepted_ptr, drafted_ptr, end_ptr,
    parents_ptr, depths_ptr, ancestors_ptr, path_ptr, firsts_ptr, takes_ptr, vocab, context, tiles, stop_count, walked,
    WIDTH: tl.constexpr, WIDTH_PAD: tl.constexpr, TILES_PAD: tl.constexpr, STOPS_PAD: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Accept while drafts are right, cut at the first end, and move the slot; one program a row.

    Where chains differ in length, a sequence's rows begin at `firsts`, and it has offered as many as it `takes`.
    """
    allow_next(PDL)
    await_previous(PDL)
    row = tl.program_id(0)
    slot = tl.load(rows_ptr + row).to(tl.int64)
    length, generated = tl.load(length_ptr + slot), tl.load(generated_ptr + slot)
    max_tokens, limit = tl.load(max_tokens_ptr + slot), tl.load(limit_ptr + slot)
    draft_limit, active = tl.load(draft_limit_ptr + slot), tl.load(active_ptr + slot) != 0
    offset = tl.arange(0, WIDTH_PAD)
    first, own = row * WIDTH, WIDTH
    if firsts_ptr is not None:
        first, own = tl.load(firsts_ptr + row), tl.load(takes_ptr + row)
    token, sane = _choices(values_ptr, choices_ptr, first, own, tiles, WIDTH_PAD, TILES_PAD)
    if parents_ptr is None:
        draft = tl.load(drafts_ptr + row * (WIDTH - 1) + offset, mask=offset < WIDTH - 1, other=-1)
        offered = (draft >= 0) & (offset < draft_limit) & (offset < own - 1)
        right = offered & (draft == token)
        if tl.load(masked_ptr + slot) != 0:
            # Masks hold for the drafts that they were made for.
            right = right & (draft == tl.load(walked_ptr + slot * walked + offset, mask=offset < WIDTH - 1, other=-1))
    else:
        # Of a tree each draft stands at its own row, and tokens are brought into the order of the path.
        drafts, depth = (offset > 0) & (offset < WIDTH), tl.load(depths_ptr + row * WIDTH + offset, mask=offset < WIDTH)
        draft = tl.load(drafts_ptr + row * (WIDTH - 1) + offset - 1, mask=drafts, other=-1)
        offered, follows = (draft >= 0) & (depth <= draft_limit), drafts
        if tl.load(masked_ptr + slot) != 0:
            made_for = tl.load(walked_ptr + slot * walked + offset - 1, mask=drafts, other=-1)
            follows = (draft == made_for) & holds_order(made_for, row, parents_ptr, WIDTH, WIDTH_PAD)
        on_path = walked_path(token, offered & follows, draft, row, parents_ptr, ancestors_ptr, WIDTH, WIDTH_PAD)
        token = in_order(on_path, token, row, depths_ptr, WIDTH, WIDTH_PAD)
        sane = in_order(on_path, sane.to(tl.int32), row, depths_ptr, WIDTH, WIDTH_PAD) != 0
        path = in_order(on_path, offset.to(tl.int64), row, depths_ptr, WIDTH, WIDTH_PAD)
        tl.store(path_ptr + row * WIDTH + offset, path, mask=offset < WIDTH)
        right = offset < tl.sum(on_path.to(tl.int32), 0) - 1
    stop = tl.arange(0, STOPS_PAD)
    stops = tl.load(stops_ptr + slot * stop_count + stop, mask=stop < stop_count, other=-1)
    stopped = tl.sum((stops[None, :] == token[:, None]).to(tl.int32), 1) > 0
    code = tl.where(length + offset + 2 >= limit, 3, 0)
    code = tl.where(generated + offset + 1 >= max_tokens, 2, code)
    code = tl.where(stopped, 1, code)
    code = tl.where(sane, code, 4)
    # A row goes on behind a right draft that ends nothing; where it stops going on, all after it is void.
    halts = ((right & (code == 0)) == 0).to(tl.int32)
    reached = active & (offset < WIDTH) & (tl.cumsum(halts, 0) == halts)
    commits = reached & sane
    count = tl.sum(commits.to(tl.int32), 0)
    accepted = tl.sum((commits & right).to(tl.int32), 0)
    drafted = tl.sum((offered & active).to(tl.int32), 0)
    end = tl.max(tl.where(reached, code, 0), 0)
    last = tl.sum(tl.where(offset == count - 1, token, 0), 0)
    anchor = tl.where(count > 0, last, tl.load(anchor_ptr + slot))
    tl.store(tokens_ptr + row * WIDTH + offset, tl.where(commits, token, -1), mask=offset < WIDTH)
    position = length + 1 + offset
    tl.store(history_ptr + slot * context + position, token.to(tl.int32), mask=commits & (position < context))
    tl.atomic_add(counts_ptr + slot * vocab + token, 1, mask=commits)
    tl.store(count_ptr + row, count)
    tl.store(accepted_ptr + row, accepted)
    tl.store(drafted_ptr + row, drafted)
    tl.store(end_ptr + row, end)
    if active:
        tl.store(length_ptr + slot, length + count)
        tl.store(generated_ptr + slot, generated + count)
        tl.store(anchor_ptr + slot, anchor)
        tl.store(active_ptr + slot, (end == 0).to(tl.uint8))
