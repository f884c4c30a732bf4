"""Sequences of random tokens, by which rounds are measured whose cost follows from their rows."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from services.common.device.staging import write
from services.target.device.context import Pool
from services.target.device.steps import Steps

_SEED = 2022


@contextmanager
def random_rows(pool: Pool, steps: Steps) -> Iterator[tuple[int, ...]]:
    """Give slots empty sequences with blocks of their own, random tokens and drafts; afterwards all is as before.

    Yields the slots. They are not active, so nothing is committed. It must come before the first request.
    """
    settings, state = pool.settings, pool.state
    own = -(-settings.widest // settings.block_size)
    slots = tuple(range(min(settings.slots, settings.blocks // own)))
    recurrent = pool.states.recurrent
    kept = [state.block_table_SN, state.slots.anchor_S, pool.mailbox_SK, pool.tag_S3, *recurrent[-1:]]
    before = [tensor.clone() for tensor in kept]
    generator = torch.Generator().manual_seed(_SEED)
    for tensor in (state.slots.anchor_S, pool.mailbox_SK):
        tensor.copy_(torch.randint(0, pool.model.spec.vocab_size, tensor.shape, generator=generator))
    for slot in slots:
        write(state.block_table_SN[slot, :own], list(range(1 + slot * own, 1 + (slot + 1) * own)))
    number, generation = (each.expand_as(state.epoch_S) for each in steps.round.expected_2)
    pool.tag_S3.copy_(torch.stack((number, state.epoch_S, generation), 1))
    try:
        yield slots
    finally:
        steps.round.set_rows(())
        for tensor, old in zip(kept, before, strict=True):
            tensor.copy_(old)
        for state_LS in recurrent[:-1]:
            state_LS.zero_()
