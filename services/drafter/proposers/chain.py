"""Drafts by a checkpoint that makes chains: K steps from the seed, over the mapped draft context."""

from torch import Tensor

from services.common.kernels.linear.weight import Weight
from services.common.kernels.span_attention import plan_context
from services.common.model import DraftChain
from services.common.model.drafters.coupling import seeded
from services.common.model.drafters.nodes import chain_of
from services.drafter.arena_view import ArenaView
from services.drafter.proposers.checkpoint import coupled


class ChainProposer:
    """Runs a checkpoint's chain for as many steps as the round has room for."""

    reads_memory = True
    max_draft: int | None = None
    """A chain has no end of its own."""

    def __init__(self, chain: DraftChain) -> None:
        self._chain = chain
        self._tables: tuple[Tensor, Weight] | None = None

    @property
    def kind(self) -> str:
        """Name of the folder that reads the checkpoint."""
        return self._chain.spec.kind

    @property
    def revision(self) -> str:
        """Revision of the drafter checkpoint."""
        return self._chain.revision

    @property
    def draws(self) -> bool:
        """Where kernels make the noise."""
        return seeded(self._chain.spec)

    def check(self, shared: ArenaView) -> None:
        """Needs the embedding, seeds and a draft context of this checkpoint's; from then on serves its whole length.

        Raises:
            ValueError: names the tensor that is missing or does not fit.
        """
        spec = self._chain.spec
        if shared.embed_VD is None or shared.draft_kv is None or shared.seed_SD is None:
            raise ValueError(f"the arena holds no embedding, no draft context or no seeds, which {self.kind} needs")
        widths = shared.embed_VD.shape[1], shared.seed_SD.shape[1]
        if widths != (spec.hidden_size, spec.hidden_size):
            raise ValueError(f"embed and seeds are {widths} wide, the drafter {spec.hidden_size}")
        types = {tensor.dtype for tensor in (shared.embed_VD, shared.draft_kv, shared.seed_SD)}
        if types != {self._chain.dtype}:
            raise ValueError(f"embed, draft_kv and seeds are {types}, the drafter {self._chain.dtype}")
        heads, head_dim, found = spec.attention.kv_heads, spec.attention.head_dim, tuple(shared.draft_kv.shape)
        if len(found) != 6 or (found[0], *found[4:]) != (1, heads, head_dim):
            raise ValueError(f"draft_kv has shape {found}, the drafter needs one layer, {heads} x {head_dim}")
        self._chain.reach(shared.history_SC.shape[1])
        self._tables = None  # made for an earlier arena: the next ones take their memory
        self._tables = self._chain.seat(shared.embed_VD, shared.lm_head_VD)

    def propose(self, shared: ArenaView, rows_B: Tensor, width: int) -> Tensor:
        """[B, width - 1] tokens, one step each."""
        assert self._tables is not None, "check() was not called"
        assert shared.draft_kv is not None and shared.seed_SD is not None, "check() was not called"
        lengths_B = shared.length_S.index_select(0, rows_B)
        table_BN = shared.block_table_SN.index_select(0, rows_B)
        span = plan_context(table_BN, lengths_B, width - 1, shared.block_size)
        anchor_B, seed_BD = shared.anchor_S.index_select(0, rows_B), shared.seed_SD.index_select(0, rows_B)
        coupling = coupled(shared, rows_B, lengths_B, width - 1, self._chain.sharpness)
        return self._chain.propose(anchor_B, seed_BD, span, shared.draft_kv, *self._tables, coupling=coupling)

    def nodes(self, shared: ArenaView, rows_B: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """Chains: each step needs the token before."""
        return chain_of(self.propose(shared, rows_B, width))

    def ranked(self, shared: ArenaView, rows_B: Tensor, width: int) -> None:
        """Nothing: there are only chains."""
