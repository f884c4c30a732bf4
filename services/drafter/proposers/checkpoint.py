"""Drafts by a checkpoint: one forward over [anchor, MASK, ...] that attends to the mapped draft context."""

import torch
from torch import Tensor

from services.common.kernels.argmax_token import Draws
from services.common.kernels.linear.weight import Weight
from services.common.kernels.prepare_span import seat_block
from services.common.model import DraftBlock
from services.common.model.drafters.coupling import Coupling, SeededCoupling, seeded
from services.common.model.drafters.nodes import Candidates, choose_nodes
from services.common.model.states.states import Part, Rows
from services.drafter.arena_view import ArenaView


class CheckpointProposer:
    """Runs a checkpoint's block at a size it was trained for and returns what the round has room for."""

    reads_memory = True

    def __init__(self, block: DraftBlock, dtype: torch.dtype, short_blocks: bool = False) -> None:
        """With `short_blocks` the block is as wide as the round: only right for checkpoints trained for that."""
        self._block = block
        self._dtype = dtype
        self._short_blocks = short_blocks
        self._sizes: dict[int, int] = {}
        self._tables: tuple[Tensor, Weight] | None = None

    @property
    def kind(self) -> str:
        """Name of the folder that reads the checkpoint."""
        return self._block.spec.kind

    @property
    def revision(self) -> str:
        """Revision of the drafter checkpoint."""
        return self._block.revision

    @property
    def max_draft(self) -> int | None:
        """Those of the trained block."""
        return self._block.spec.most_drafts

    @property
    def draws(self) -> bool:
        """Where kernels make the noise."""
        return seeded(self._block.spec)

    def check(self, shared: ArenaView) -> None:
        """Needs the embedding and a draft context made for this checkpoint; from then on serves its whole length.

        Raises:
            ValueError: names the tensor that is missing or does not fit.
        """
        spec = self._block.spec
        if shared.embed_VD is None or shared.draft_kv is None:
            raise ValueError(f"the arena holds no embedding or no draft context, which {self.kind} needs")
        if shared.embed_VD.shape[1] != spec.hidden_size:
            raise ValueError(f"embed is {shared.embed_VD.shape[1]} wide, the drafter {spec.hidden_size}")
        if shared.embed_VD.dtype != self._dtype or shared.draft_kv.dtype != self._dtype:
            raise ValueError(f"embed and draft_kv are {shared.embed_VD.dtype}, the drafter {self._dtype}")
        layers, heads, head_dim = len(spec.layers), spec.attention.kv_heads, spec.attention.head_dim
        found = tuple(shared.draft_kv.shape)
        if len(found) != 6 or (found[0], found[4], found[5]) != (layers, heads, head_dim):
            raise ValueError(f"draft_kv has shape {found}, the drafter needs {layers} layers, {heads} x {head_dim}")
        self._block.reach(shared.history_SC.shape[1])
        self._tables = None  # made for an earlier arena: the next ones take their memory
        self._tables = self._block.seat(shared.embed_VD, shared.lm_head_VD)

    def propose(self, shared: ArenaView, rows_B: Tensor, width: int) -> Tensor:
        """[B, width - 1] tokens: the head's choice for each position."""
        return self._block.propose(*self._inputs(shared, rows_B, width - 1))

    def nodes(self, shared: ArenaView, rows_B: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """The best tree of the head's candidates, as deep as a block has drafts."""
        return choose_nodes(self.ranked(shared, rows_B, width), width - 1)

    def ranked(self, shared: ArenaView, rows_B: Tensor, width: int) -> Candidates:
        """The head's candidates of as many positions as a tree of so many rows, and a block, can be deep."""
        depth = min(width - 1, self._block.spec.most_drafts)
        return self._block.rank(*self._inputs(shared, rows_B, depth))

    def _inputs(
        self, shared: ArenaView, rows_B: Tensor, count: int
    ) -> tuple[Tensor, Rows, Tensor, Tensor, Weight, int, Coupling | None]:
        """What the block needs to draft so many positions behind each row's anchor."""
        assert self._tables is not None, "check() was not called"
        assert shared.draft_kv is not None, "check() was not called"
        spec = self._block.spec
        block = self._sizes.get(count)
        if block is None:
            block = self._sizes[count] = count + spec.first_row if self._short_blocks else spec.block_for(count)
        ids_BW, span = seat_block(
            rows_B,
            shared.anchor_S,
            shared.length_S,
            shared.block_table_SN,
            block,
            shared.block_size,
            spec.mask_token_id,
        )
        coupling = coupled(shared, rows_B, span.lengths_B, count, self._block.sharpness)
        return ids_BW, Rows(Part(span, rows_B)), shared.draft_kv, *self._tables, count, coupling


def coupled(shared: ArenaView, rows_B: Tensor, lengths_B: Tensor, count: int, sharpness: float) -> Coupling | None:
    """The noise of the drafted positions, as the target draws by it; None where it is not shared, or no row samples.

    `sharpness` is a factor on the logits of such rows.
    """
    if shared.temperature_S is None:
        return None
    if shared.draw_seed_S is not None:
        draws = Draws(rows_B, shared.draw_seed_S, shared.length_S, shared.temperature_S, sharpness)
        return SeededCoupling(draws)
    if shared.noise_TV is None:
        return None
    temperature_B = shared.temperature_S.index_select(0, rows_B)
    sampled_B = temperature_B > 0
    if not bool(sampled_B.any()):
        return None
    held = shared.noise_TV.shape[0] // shared.temperature_S.shape[0]
    positions_BK = lengths_B[:, None] + torch.arange(1, count + 1)
    places_BK = rows_B[:, None] * held + positions_BK % held
    noise_BKV = shared.noise_TV.index_select(0, places_BK.flatten()).view(*places_BK.shape, -1)
    scale_B = torch.where(sampled_B, sharpness / temperature_B.clamp_min(1e-6), 1.0)
    return Coupling(noise_BKV, scale_B.to(noise_BKV.dtype), sampled_B.to(noise_BKV.dtype))
