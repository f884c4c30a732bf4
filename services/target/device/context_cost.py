"""What a token of context adds to a verify, measured before the first request."""

import time
from math import inf

import torch

from services.common.device.staging import write
from services.target.core.width import Ragged, Width
from services.target.device.context import Pool
from services.target.device.steps import Steps, kind_of, shape_of, synchronise

_REPEATS = 5
_LONG, _SHORTER = 1024, 8
"""Tokens of the longer contexts at most, and how many times shorter the others are."""


def context_micros(pool: Pool, steps: Steps) -> dict[Width, float]:
    """Return microseconds by width that each token of the rows' contexts adds to a greedy verify; 0 without room.

    The most sequences of a round have contexts of one length, then of another. Their blocks are their own, for a GPU
    reads those that sequences share faster. Their slots are not active, so nothing is committed. Afterwards slots are
    as before. Who calls it publishes them again.
    """
    settings = pool.settings
    rows, widest = min(settings.slots, settings.buckets[-1]), settings.widest
    own = min(settings.blocks // rows, settings.max_blocks)
    most = min(_LONG, settings.context_limit - widest, own * settings.block_size - widest)
    lengths = most // _SHORTER, most
    if lengths[0] < 1:
        return dict.fromkeys(settings.every_width, 0.0)
    state, recurrent = pool.state, pool.states.recurrent
    kept = [state.slots.length_S, state.block_table_SN, *recurrent[-1:]]
    before = [tensor.clone() for tensor in kept]
    for slot in range(rows):
        first = 1 + slot * own
        write(state.block_table_SN[slot, :own], list(range(first, first + own)))
    steps.round.set_rows(tuple(range(rows)))
    try:
        return {width: _slope(pool, steps, rows, width, lengths) for width in settings.every_width}
    finally:
        steps.round.set_rows(())
        for tensor, old in zip(kept, before, strict=True):
            tensor.copy_(old)
        for state_LS in recurrent[:-1]:
            state_LS[:, :rows].zero_()


def _slope(pool: Pool, steps: Steps, rows: int, width: Width, lengths: tuple[int, int]) -> float:
    bucket = pool.settings.bucket(rows)
    shape = shape_of(bucket, width)
    kind = kind_of(pool.settings, shape, width, lengths[1] + int(width))
    if isinstance(width, Ragged):
        if not width.fits(rows):
            return 0.0
        steps.seat(width, range(rows))
    least = dict.fromkeys(lengths, inf)
    # In turn, so that both meet what else runs; it only makes a round longer.
    for length in lengths * _REPEATS:
        pool.state.slots.length_S[:rows].fill_(length)
        if grid := pool.states.grid:
            pool.states.tensors[-1][:rows].fill_(length // grid * grid)
        least[length] = min(least[length], _micros(pool.device, steps, *shape, kind))
    if isinstance(width, Ragged):
        steps.seat(width, ())
    shorter, longer = lengths
    return max(0.0, (least[longer] - least[shorter]) / (rows * (longer - shorter)))


def _micros(device: torch.device, steps: Steps, bucket: int, width: int, kind: str) -> float:
    synchronise(device)
    start = time.perf_counter()
    steps.run_verify(bucket, width, "greedy", kind)
    synchronise(device)
    return (time.perf_counter() - start) * 1e6
