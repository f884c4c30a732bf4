"""What the target shares with its drafter: the arena's tensors and the copies published before a round is paced.

Every verify ends by publishing what it committed, so that in a steady round nothing stands between it and the drafter.
The state itself stays private to the target, and the arena holds copies. Exceptions are the history of token ids and
the draft context K/V, which decide no output, and the embedding in a sealed arena, which nobody else can write.
"""

import torch

from services.common.kernels.mailbox import publish_slots
from services.common.model import DraftContext, ModelSpec
from services.common.pair import attach
from services.common.pair.arena import Arena, ArenaSpec
from services.target.device.context import Pool
from services.target.device.noise_ring import ring_shape
from services.target.device.shapes import RunnerSettings
from services.target.device.verify import RoundInputs


def arena_spec(
    target: ModelSpec,
    context: DraftContext,
    settings: RunnerSettings,
    dtype: torch.dtype,
    in_memory: bool = False,
) -> ArenaSpec:
    """Names, shapes and data types of every tensor of the arena.

    A drafter that reads nothing of the target gets neither embeddings nor draft context. `in_memory` is for arenas of a
    CPU: it adds a copy of the noise that the target samples with, and whose each slot is. Others have seeds.
    """
    spec = dict(
        attach.control_tensors(
            attach.ControlShape(
                slots=settings.slots,
                max_blocks=settings.max_blocks,
                context=settings.context_limit,
                max_bucket=settings.buckets[-1],
                max_draft=max(settings.max_draft, 1),
                nodes=bool(settings.trees),
            )
        )
    )
    if in_memory:
        spec[attach.OWNER] = ((settings.slots + 1,), torch.int64)
    if not context.taps:
        return spec
    table = (target.vocab_size, target.hidden_size)
    spec[attach.EMBED] = (table, dtype)
    if not target.tied:
        spec[attach.LM_HEAD] = (table, dtype)
    spec[attach.DRAFT_KV] = (context.kv_shape(settings.blocks + 1, settings.block_size), dtype)
    if context.seed_width:
        spec[attach.SEED] = ((settings.slots + 1, context.seed_width), dtype)
    if in_memory:
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        spec[attach.NOISE] = (ring_shape(settings.slots, target.vocab_size, settings.widest), wide)
    else:
        spec[attach.DRAW_SEED] = ((settings.slots + 1,), torch.int64)
    spec[attach.TEMPERATURE] = ((settings.slots + 1,), torch.float32)
    return spec


class Publisher:
    """Copies the private state into the arena for the drafter; the copies are made for the whole table at once."""

    def __init__(self, arena: Arena, pool: Pool, inputs: RoundInputs) -> None:
        self._pool = pool
        self._inputs = inputs
        self._epoch_S = arena.tensor(attach.EPOCH)
        self._table_SN = arena.tensor(attach.BLOCK_TABLE)
        slots = pool.state.slots
        draws = {attach.TEMPERATURE: slots.temperature_S, attach.DRAW_SEED: slots.seed_S}
        self._draws = [(arena.tensor(name), own_S) for name, own_S in draws.items() if name in arena]
        self._rows_version = self._state_version = -1

    def update(self) -> None:
        """Publishes, unless the last verify has published all there is to tell.

        A verify publishes its own rows. It cannot do so for other rows, or for slots and block tables that changed
        since.
        """
        if (self._rows_version, self._state_version) != (self._inputs.version, self._pool.state.version):
            self.publish()

    def forget(self) -> None:
        """Makes the next update publish everything, because a drafter that is gone may have overwritten it."""
        self._rows_version = self._state_version = -1

    def publish(self) -> None:
        """Publishes lengths, anchors, seeds, epochs, block tables and the rows of the round."""
        state, inputs = self._pool.state, self._inputs
        if self._pool.seeds is not None:
            self._pool.seeds.publish()
        publish_slots(inputs.rows_B, state.slots.length_S, state.slots.anchor_S, self._pool.mapped)
        if state.version != self._state_version:
            self._epoch_S.copy_(state.epoch_S)
            self._table_SN.copy_(state.block_table_SN)
            for shared_S, own_S in self._draws:
                shared_S.copy_(own_S)
        self._rows_version, self._state_version = inputs.version, state.version
