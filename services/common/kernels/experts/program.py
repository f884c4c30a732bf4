"""The programs of a mixture of experts.

A row's bits follow from the row alone. Its gates are its own; an expert's product adds the whole depth in order, in one
accumulator, whatever the tile; parts are added by rank.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs

import triton
import triton.language as tl

from services.common.kernels.experts.choice import by_row, chosen_experts
from services.common.kernels.experts.products import multiplied, multiplied_twice
from services.common.kernels.pdl import allow_next, await_previous
from services.common.kernels.rms_norm.kernel import norm_weight
from services.common.kernels.sandwich.kernel import leave_sum, normalised
from services.common.kernels.sums import root_scale, squares
from services.common.kernels.swiglu.kernel import activated


@triton.jit
def route_kernel(
    gates_ptr, live_ptr, bias_ptr, scale_ptr, ids_ptr, weights_ptr, tiles_ptr, stride,
    COUNT: tl.constexpr, COUNT_PAD: tl.constexpr, TOP_K: tl.constexpr, TOP_PAD: tl.constexpr, RENORM: tl.constexpr,
    CAP: tl.constexpr, FACTOR: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Choose a row's experts, the lowest of equal ones first; a row that is padding gets the number COUNT, for none.

    There are no tiles yet.
    """
    allow_next(PDL)
    row, expert, rank = tl.program_id(0), tl.arange(0, COUNT_PAD)[None, :], tl.arange(0, TOP_PAD)[None, :]
    inside, bias = expert < COUNT, bias_ptr
    if bias_ptr is not None:
        bias = by_row(bias_ptr, expert, inside, 1, COUNT_PAD)
    await_previous(PDL)
    if row == 0:
        tl.store(tiles_ptr, 0)
    gates_at = gates_ptr + row.to(tl.int64) * stride + expert
    logit = tl.load(gates_at, mask=inside, other=float("-inf")).to(tl.float32)
    chosen, weights, _, _, _ = chosen_experts(
        logit, bias, scale_ptr, inside, expert, rank, 1, COUNT_PAD, TOP_K, TOP_PAD, RENORM, CAP, FACTOR
    )
    if live_ptr is not None:
        chosen = tl.where(tl.load(live_ptr + row) != 0, chosen, COUNT)
    at = row * TOP_K + rank
    tl.store(ids_ptr + at, chosen, mask=rank < TOP_K)
    tl.store(weights_ptr + at, weights, mask=rank < TOP_K)


@triton.jit
def route_few_kernel(
    gates_ptr, live_ptr, bias_ptr, scale_ptr, ids_ptr, weights_ptr, order_ptr, tiles_ptr, count_ptr, uses_ptr, rows,
    most_tiles, stride,
    COUNT: tl.constexpr, COUNT_PAD: tl.constexpr, TOP_K: tl.constexpr, TOP_PAD: tl.constexpr, RENORM: tl.constexpr,
    CAP: tl.constexpr, FACTOR: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr, RANKS: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Choose as `route_kernel` and place as `sort_kernel` in one program: no expert has more rows than a tile.

    With one rank more than experts of a row there is one tile more: that of the expert behind all, with every row.
    """
    allow_next(PDL)
    row, expert, rank = tl.arange(0, ROWS)[:, None], tl.arange(0, COUNT_PAD)[None, :], tl.arange(0, TOP_PAD)[None, :]
    inside, there, bias = expert < COUNT, row < rows, bias_ptr
    if bias_ptr is not None:
        bias = by_row(bias_ptr, expert, inside, ROWS, COUNT_PAD)
    one, uses = tl.arange(0, COUNT_PAD), 0
    if ROWS == 1 and uses_ptr is not None:  # which the last round counted, so it is there
        uses = tl.load(uses_ptr + one, mask=one < COUNT, other=0)
    await_previous(PDL)
    live = there
    if live_ptr is not None:
        live = there & (tl.load(live_ptr + row, mask=there, other=0) != 0)
    logit = tl.load(gates_ptr + row * stride + expert, mask=inside & there, other=0.0).to(tl.float32)
    logit = tl.where(inside, logit, float("-inf"))
    chosen, weights, every, ranks, taken = chosen_experts(
        logit, bias, scale_ptr, inside, expert, rank, ROWS, COUNT_PAD, TOP_K, TOP_PAD, RENORM, CAP, FACTOR
    )
    if ROWS == 1:
        asked = rank < TOP_K
        tl.store(ids_ptr + rank, tl.where(live, chosen, COUNT), mask=asked)
        tl.store(weights_ptr + rank, weights, mask=asked)
        place_alone(chosen, asked & live, rank, order_ptr, tiles_ptr, count_ptr, most_tiles, COUNT, TOP_K, TILE, RANKS)
        if uses_ptr is not None:
            tl.store(uses_ptr + one, uses + 1, mask=tl.max((taken & live).to(tl.int32), 0) != 0)
    else:
        # Each expert that is taken stores its own: what lies by rank would go from warp to warp, rank by rank.
        at = row * TOP_K + ranks
        tl.store(ids_ptr + at, tl.where(live, expert, COUNT), mask=taken & there)
        tl.store(weights_ptr + at, every, mask=taken & there)
        place_few(
            (taken & live).to(tl.int32), ranks, row, rows, order_ptr, tiles_ptr, count_ptr, uses_ptr, most_tiles,
            COUNT, COUNT_PAD, TOP_K, ROWS, TILE, RANKS,
        )  # fmt: skip


@triton.jit
def place_alone(
    chosen, taken, rank, order_ptr, tiles_ptr, count_ptr, most_tiles,
    COUNT: tl.constexpr, TOP_K: tl.constexpr, TILE: tl.constexpr, RANKS: tl.constexpr,
):  # fmt: skip
    """Place a row that is alone: a rank is a tile, nothing is counted; that of the expert behind all is the first."""
    FIRST: tl.constexpr = RANKS - TOP_K
    tl.store(order_ptr + (FIRST + rank) * TILE, rank, mask=taken)
    tl.store(tiles_ptr + FIRST + rank, chosen, mask=taken)
    tl.store(tiles_ptr + most_tiles + FIRST + rank, 1, mask=taken)
    if FIRST > 0:
        tl.store(order_ptr, TOP_K)
        tl.store(tiles_ptr, COUNT)
        tl.store(tiles_ptr + most_tiles, 1)
    tl.store(count_ptr, FIRST + tl.sum(tl.sum(taken.to(tl.int32), 1), 0))


@triton.jit
def place_few(
    taken, ranks, row, rows, order_ptr, tiles_ptr, count_ptr, uses_ptr, most_tiles,
    COUNT: tl.constexpr, COUNT_PAD: tl.constexpr, TOP_K: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr,
    RANKS: tl.constexpr,
):  # fmt: skip
    """Place rows by the experts that they have taken, whose order tiles have; that of the expert behind all is last."""
    counts = tl.sum(taken, 0)
    used = (counts > 0).to(tl.int32)
    tile = tl.cumsum(used, 0) - 1
    place = tile[None, :] * TILE + tl.cumsum(taken, 0) - 1
    tl.store(order_ptr + place, row * RANKS + ranks, mask=taken != 0)
    one = tl.arange(0, COUNT_PAD)
    tl.store(tiles_ptr + tile, one, mask=used != 0)
    tl.store(tiles_ptr + most_tiles + tile, counts, mask=used != 0)
    tiles = tl.sum(used, 0)
    if RANKS > TOP_K:
        every = tl.arange(0, ROWS)
        tl.store(order_ptr + tiles * TILE + every, every * RANKS + TOP_K, mask=every < rows)
        tl.store(tiles_ptr + tiles, COUNT)
        tl.store(tiles_ptr + most_tiles + tiles, rows)
    tl.store(count_ptr, tiles + RANKS - TOP_K)
    if uses_ptr is not None:
        tl.store(uses_ptr + one, tl.load(uses_ptr + one, mask=used != 0) + 1, mask=used != 0)


@triton.jit
def sort_kernel(
    ids_ptr, order_ptr, tiles_ptr, count_ptr, uses_ptr, pairs, most_tiles,
    CHUNK: tl.constexpr, PLACES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Give an expert its places: `order` lists pairs of row and rank by tiles of so many, each of one expert.

    A tile is its expert and how many of its places are taken, in two lists. Each program counts its own, takes the next
    tiles that nobody has, and adds one use of its expert, where it has rows.
    """
    allow_next(PDL)
    await_previous(PDL)
    mine, lane = tl.program_id(0), tl.arange(0, CHUNK)
    own = 0
    for first in range(0, pairs, CHUNK):
        own += tl.sum((tl.load(ids_ptr + first + lane, mask=first + lane < pairs, other=-1) == mine).to(tl.int32), 0)
    if own > 0:
        tiles = (own + PLACES - 1) // PLACES
        tile = tl.atomic_add(count_ptr, tiles, sem="relaxed")
        if uses_ptr is not None:
            tl.store(uses_ptr + mine, tl.load(uses_ptr + mine) + 1)
        for first in range(0, tiles, CHUNK):
            at = first + lane
            tl.store(tiles_ptr + tile + at, mine + 0 * at, mask=at < tiles)
            tl.store(tiles_ptr + most_tiles + tile + at, tl.minimum(own - at * PLACES, PLACES), mask=at < tiles)
        place = tile * PLACES
        for first in range(0, pairs, CHUNK):
            ids = tl.load(ids_ptr + first + lane, mask=first + lane < pairs, other=-1)
            hit = (ids == mine).to(tl.int32)
            tl.store(order_ptr + place + tl.cumsum(hit, 0) - 1, first + lane, mask=hit != 0)
            place += tl.sum(hit, 0)


@triton.jit
def store_band(
    total, scale, target, used, out_ptr, band, outputs,
    ROWS: tl.constexpr, LINES: tl.constexpr, GATED: tl.constexpr, GELU: tl.constexpr,
):  # fmt: skip
    """Round a band of a product, join its halves where it is GATED, and store it by target."""
    kind = out_ptr.dtype.element_ty
    result = total.to(kind).to(tl.float32)
    if GATED:
        result = gated(result, scale, LINES, ROWS, GELU)
    output = band * LINES + tl.arange(0, LINES)
    at = target.to(tl.int64)[None, :] * outputs + output[:, None]
    tl.store(out_ptr + at, result.to(kind), mask=used[None, :] & (output < outputs)[:, None])


@triton.jit
def scales_of(squares_ptr, source, used, inverse_depth, eps):
    """Return what rows of x are multiplied by for their norm: 1 where they are divided by it already."""
    scale = tl.where(used, 1.0, 1.0)
    if squares_ptr is not None:
        squares_R = tl.load(squares_ptr + source, mask=used, other=0, cache_modifier=".cg")
        scale = root_scale(squares_R, inverse_depth, eps)
    return scale


@triton.jit
def gated(result, scale, LINES: tl.constexpr, ROWS: tl.constexpr, GELU: tl.constexpr):
    """Return SwiGLU, or GeGLU, of a band whose first half are the gate's lines, of rows times their scale."""
    result *= scale[None, :]
    gate, up = tl.split(tl.permute(tl.reshape(result, (2, LINES, ROWS)), (1, 2, 0)))
    return activated(gate, GELU) * up


@triton.jit
def first_of_expert(weight_ptr, at_ptr, scales_ptr, number, outputs, depth, GATED: tl.constexpr):
    """Return where an expert's lines begin; a word has four codes."""
    if scales_ptr is not None:
        depth //= 4
    if at_ptr is None:
        weight_ptr += number * (2 * outputs if GATED else outputs) * depth
    else:
        weight_ptr += tl.load(at_ptr + number) * (8 if scales_ptr is None else 4)
    return weight_ptr


@triton.jit
def first_scales(scales_ptr, number, line, fitting, next_stack, shift):
    """Return where the scale of each line lies for its first inputs; None: lines are numbers."""
    scale_at = scales_ptr
    if scales_ptr is not None:
        scale_at = scales_ptr + number * next_stack + (tl.where(fitting, line, 0) >> shift)
    return scale_at


@triton.jit
def expert_kernel(
    x_ptr, weight_ptr, scales_ptr, at_ptr, order_ptr, tiles_ptr, count_ptr, squares_ptr, out_ptr,
    outputs, depth, most_tiles, behind, next_stack, next_scales, shift, inverse_depth, eps,
    RANKS: tl.constexpr, ROWS: tl.constexpr, MORE: tl.constexpr, BAND: tl.constexpr, DEPTH: tl.constexpr,
    EVEN: tl.constexpr, GATED: tl.constexpr, GELU: tl.constexpr, KNOWN: tl.constexpr, SOON: tl.constexpr,
    SHORT: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Multiply the rows of a tile by a band of their expert's lines; programs beyond the tiles that there are return.

    A tile has ROWS places and MORE of them, a product of their own that few tiles need. GATED: half of a band's lines
    are the gate's, half those `outputs` further, SwiGLU joins them, and results lie in the order of places. Otherwise x
    lies so, and results lie by row and rank. An expert lies where `at` says, in multiples of eight numbers behind
    `weight`, or of sixteen codes, in any memory; without it, experts lie one behind the other. Codes of e4m3 have
    `scales` for each `1 << shift` lines, by the experts' numbers, wherever these lie.

    So many tiles at the start are KNOWN: the expert `behind` all others has the only row. They do not wait for routes,
    and read what came before past the first cache.

    SOON lets the next kernel begin before there are products: a sum of one row has its multiprocessor then.
    """
    LINES: tl.constexpr = BAND // 2 if GATED else BAND
    tile, band, one = tl.program_id(0), tl.program_id(1), tl.arange(0, ROWS)
    place = tile * (ROWS + MORE) + one
    if KNOWN > 0:
        if tile >= KNOWN:
            await_previous(PDL)
    else:
        await_previous(PDL)
    # All at once: what lies beyond the tiles that there are is read and not used.
    count, expert, rows = tl.load(count_ptr), tl.load(tiles_ptr + tile), tl.load(tiles_ptr + most_tiles + tile)
    pair = tl.load(order_ptr + place)
    if KNOWN > 0:
        early = tile < KNOWN
        count, expert = tl.where(early, KNOWN, count), tl.where(early, behind, expert)
        rows, pair = tl.where(early, 1, rows), tl.where(early, 0, pair)
    if tile < count:
        used, number = one < rows, expert.to(tl.int64)
        pair = tl.where(used, pair, 0)
        lane = tl.arange(0, BAND)
        if GATED:
            source, target = pair // RANKS, place
            line = band * LINES + lane % LINES + lane // LINES * outputs
            fitting = band * LINES + lane % LINES < outputs
        else:
            source, target = place, pair
            line = band * LINES + lane
            fitting = line < outputs
        scale = scales_of(squares_ptr, source, used, inverse_depth, eps) if GATED else 1.0
        weight_ptr = first_of_expert(weight_ptr, at_ptr, scales_ptr, number, outputs, depth, GATED)
        scale_at = first_scales(scales_ptr, number, line, fitting, next_stack, shift)
        allow_next(SOON)
        if MORE == 0:
            total = multiplied(
                x_ptr, source, used, weight_ptr, line, fitting, scale_at, next_scales, depth, ROWS, BAND, DEPTH, EVEN,
                SHORT,
            )  # fmt: skip
        elif rows > ROWS:
            later_place = tile * (ROWS + MORE) + ROWS + tl.arange(0, MORE)
            later_used = ROWS + tl.arange(0, MORE) < rows
            later_pair = tl.load(order_ptr + later_place, mask=later_used, other=0)
            if GATED:
                later, later_target = later_pair // RANKS, later_place
            else:
                later, later_target = later_place, later_pair
            later_scale = scales_of(squares_ptr, later, later_used, inverse_depth, eps) if GATED else 1.0
            total, more = multiplied_twice(
                x_ptr, source, used, later, later_used, weight_ptr, line, fitting, scale_at, next_scales, depth, ROWS,
                MORE, BAND, DEPTH, EVEN, SHORT,
            )  # fmt: skip
            store_band(more, later_scale, later_target, later_used, out_ptr, band, outputs, MORE, LINES, GATED, GELU)
        else:
            total = multiplied(
                x_ptr, source, used, weight_ptr, line, fitting, scale_at, next_scales, depth, ROWS, BAND, DEPTH, EVEN,
                SHORT,
            )  # fmt: skip
        allow_next(PDL)
        store_band(total, scale, target, used, out_ptr, band, outputs, ROWS, LINES, GATED, GELU)


@triton.jit
def added(
    parts_ptr, ids_ptr, weights_ptr, row, column, inside, width,
    COUNT: tl.constexpr, TOP_K: tl.constexpr, RANKS: tl.constexpr, WIDTH_PAD: tl.constexpr,
):  # fmt: skip
    """Return the sum of a row's parts, by rank; there may be more, which nobody has weighted.

    Those of no expert are read too, and count as zero: so no part waits until it is known whose it is.
    """
    total = tl.zeros((WIDTH_PAD,), tl.float32)
    for rank in tl.static_range(TOP_K):
        pair = row * TOP_K + rank
        at = (row * RANKS + rank) * width + column
        part = tl.load(parts_ptr + at, mask=inside, other=0.0).to(tl.float32)
        part = tl.where(tl.load(ids_ptr + pair) < COUNT, part, 0.0)
        total = total + part * tl.load(weights_ptr + pair)
    return total


@triton.jit
def combine_kernel(
    parts_ptr, ids_ptr, weights_ptr, shared_ptr, gate_ptr, shared_stride, gate_stride, stream_ptr, norm_ptr, scaled_ptr,
    squares_ptr, width,
    COUNT: tl.constexpr, TOP_K: tl.constexpr, RANKS: tl.constexpr, WIDTH_PAD: tl.constexpr, OFFSET: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Add a row's parts by rank, what all rows take, and the stream, in place; round once, and begin the sum's norm."""
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH_PAD)
    inside, at = column < width, row * width + column
    allow_next(PDL)
    norm = norm_weight(tl.load(norm_ptr + column, mask=inside, other=0.0).to(tl.float32), OFFSET)
    await_previous(PDL)
    # All is asked for at once: behind the kernel that begins meanwhile, and streams its weights, an answer takes long.
    stream = tl.load(stream_ptr + at, mask=inside, other=0.0)
    total = added(parts_ptr, ids_ptr, weights_ptr, row, column, inside, width, COUNT, TOP_K, RANKS, WIDTH_PAD)
    if shared_ptr is not None:
        shared = tl.load(shared_ptr + row * shared_stride + column, mask=inside, other=0.0).to(tl.float32)
        if gate_ptr is not None:
            shared = shared / (1.0 + tl.exp(-tl.load(gate_ptr + row * gate_stride).to(tl.float32)))
        total = total + shared
    rounded = (total + stream.to(tl.float32)).to(stream.dtype)
    tl.store(stream_ptr + at, rounded, mask=inside)
    wide = rounded.to(tl.float32)
    tl.store(scaled_ptr + at, (wide * norm).to(stream.dtype), mask=inside)
    tl.store(squares_ptr + row, tl.sum(squares(wide), 0))


@triton.jit
def combine_beside_kernel(
    parts_ptr, ids_ptr, weights_ptr, dense_ptr, mixed_norm_ptr, dense_norm_ptr, own_norm_ptr, next_norm_ptr,
    stream_ptr, scale_ptr, total_ptr, scaled_ptr, squares_ptr, width, inverse_width, eps,
    COUNT: tl.constexpr, TOP_K: tl.constexpr, WIDTH_PAD: tl.constexpr, OFFSET: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Add a row's parts by rank and what is beside them, each normalised; do with the sum as `sandwich` does."""
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH_PAD)
    inside = column < width
    allow_next(PDL)
    await_previous(PDL)
    mixed = added(parts_ptr, ids_ptr, weights_ptr, row, column, inside, width, COUNT, TOP_K, TOP_K, WIDTH_PAD)
    mixed = normalised(mixed, mixed_norm_ptr, column, inside, inverse_width, eps, OFFSET)
    dense = tl.load(dense_ptr + row * width + column, mask=inside, other=0.0).to(tl.float32)
    fed = normalised(dense, dense_norm_ptr, column, inside, inverse_width, eps, OFFSET) + mixed
    fed = normalised(fed, own_norm_ptr, column, inside, inverse_width, eps, OFFSET)
    leave_sum(
        fed, stream_ptr, next_norm_ptr, scale_ptr, total_ptr, scaled_ptr, squares_ptr, row, column, inside, width,
        OFFSET,
    )  # fmt: skip
