"""What a step of the target works on: the model, its caches and the arena's tensors, gathered once."""

from dataclasses import dataclass

import torch
from torch import Tensor

from services.common.kernels.dispatch import on_kernel
from services.common.kernels.mailbox import Mapped
from services.common.kernels.nodes import Nodes, read_nodes
from services.common.model import DraftContext, Target
from services.common.model.states.draft_context import Chained
from services.common.model.states.seeds import Seeds
from services.common.model.states.states import Rows, SequenceStates
from services.common.pair import attach
from services.common.pair.arena import Arena
from services.target.device.shapes import RunnerSettings
from services.target.device.state import DeviceState
from services.target.drafting.handoff.mailbox import Mailbox
from services.target.drafting.shared_weights import SharedWeights


@dataclass(frozen=True, slots=True)
class Pool:
    """Model, state and caches of one target.

    `states` are the sequences'; `draft_kv` is what `context` writes, and `weights` are what its drafter reads of the
    model, absent where it reads nothing. `seeds` are those of a drafter that makes chains. `mailbox_SK`, `tag_S3` and
    `parents_SK` are read only as the first step of a verify, `mapped` and `draft_kv` are only written. There are
    `parents_SK` where drafts are trees. On a GPU the logits of every step go to `logits_TV`: captured steps that kept
    theirs would hold gigabytes.
    """

    model: Target
    context: DraftContext
    state: DeviceState
    settings: RunnerSettings
    states: SequenceStates
    weights: SharedWeights | None
    draft_kv: Tensor
    seeds: Seeds | None
    mailbox_SK: Tensor
    tag_S3: Tensor
    parents_SK: Tensor | None
    mapped: Mapped
    logits_TV: Tensor | None

    @classmethod
    def build(
        cls,
        model: Target,
        context: DraftContext,
        state: DeviceState,
        arena: Arena,
        mailbox: Mailbox,
        settings: RunnerSettings,
    ) -> "Pool":
        """Shares the embedding and allocates the sequences' states."""
        # First: a sealed arena replaces the model's own embedding, whose memory must be free before the K/V is
        # allocated.
        weights = SharedWeights(model, arena) if attach.EMBED in arena else None
        widest = settings.widest
        by_slot = settings.slots + 1, widest, settings.snapshots, settings.coded, settings.near
        states = model.new_states(settings.blocks + 1, settings.block_size, *by_slot)
        most = settings.buckets[-1] * settings.widest, model.spec.vocab_size
        return cls(
            model=model,
            context=context,
            state=state,
            settings=settings,
            states=states,
            weights=weights,
            draft_kv=arena.tensor(attach.DRAFT_KV) if attach.DRAFT_KV in arena else torch.empty(0),
            seeds=_seeds(context, settings, arena),
            mailbox_SK=mailbox.tokens_SK,
            tag_S3=mailbox.tag_S3,
            parents_SK=mailbox.parents_SK,
            mapped=Mapped(
                rows_B=arena.tensor(attach.ROWS),
                length_S=arena.tensor(attach.LENGTH),
                anchor_S=arena.tensor(attach.ANCHOR),
                history_length_S=arena.tensor(attach.HISTORY_LENGTH),
            ),
            logits_TV=torch.empty(most, dtype=model.logit_type, device=model.device)
            if on_kernel(model.embed_VD)
            else None,
        )

    def write_context(self, ids_T: Tensor, features_TF: Tensor, rows: Rows) -> Tensor | None:
        """Write the draft context of rows; return their states [T, D] where the drafter makes chains."""
        chained = None if self.seeds is None else Chained(ids_T, self.seeds)
        return self.context.write(features_TF, rows, self.draft_kv, chained)

    def logits(self, hidden_TD: Tensor) -> Tensor:
        """Raw logits [T, V]; on a GPU the next step overwrites them."""
        return self.model.logits(hidden_TD, None if self.logits_TV is None else self.logits_TV[: len(hidden_TD)])

    def read_nodes(self, rows_B: Tensor, drafts_BK: Tensor, nodes: Nodes) -> None:
        """Take the trees of a round whose drafts were read."""
        assert self.parents_SK is not None, "rounds are of chains"
        state = self.state
        table_SN, length_S = state.block_table_SN, state.slots.length_S
        read_nodes(self.parents_SK, rows_B, table_SN, length_S, self.settings.block_size, drafts_BK, nodes)

    @property
    def paged(self) -> list[Tensor]:
        """Keys and values of all layers, and the draft context, where there is one."""
        return [*self.states.paged, self.draft_kv] if self.context.taps else self.states.paged

    @property
    def device(self) -> torch.device:
        """Where everything lies."""
        return self.model.device

    @property
    def tensors(self) -> list[Tensor]:
        """Every long-lived tensor that a step reads or writes; the signature of a step holds them."""
        state, states = self.state, self.states.tensors
        slots = [state.epoch_S, state.block_table_SN, state.slots.length_S]
        seeds = [] if self.seeds is None else self.seeds.tensors
        parents = [] if self.parents_SK is None else [self.parents_SK]
        return [*states, self.draft_kv, *seeds, self.mailbox_SK, self.tag_S3, *parents, *slots]


def _seeds(context: DraftContext, settings: RunnerSettings, arena: Arena) -> Seeds | None:
    if not context.seed_width:
        return None
    return Seeds(settings.blocks + 1, settings.block_size, arena.tensor(attach.SEED))
