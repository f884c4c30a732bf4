"""Prefill of one chunk of one prompt at a static length, and the first token after the last chunk.

Rows past the chunk's tokens are padding: they write to the pad block and no real row attends to them. A chunk writes
the draft context of its rows too, so every block is complete for any drafter that attaches later.
"""

import torch
from torch import Tensor

from services.common.device.staging import write
from services.common.kernels.accept import RoundResult, accept
from services.common.kernels.span_attention import plan_span
from services.common.model.rows import Part, Rows
from services.target.core.plan import Chunk
from services.target.device.context import Pool
from services.target.device.verify import Mode


class PrefillInputs:
    """Static inputs of all chunk lengths, and the hidden state of the last token of the chunk, `[1, D]`."""

    def __init__(self, pool: Pool) -> None:
        device = pool.device
        self.row_B = torch.zeros(1, dtype=torch.int32, device=device)
        self.start_B = torch.zeros(1, dtype=torch.int64, device=device)
        self.valid_B = torch.ones(1, dtype=torch.int64, device=device)
        self.last_B = torch.zeros(1, dtype=torch.int64, device=device)
        self.hidden_1D = torch.zeros(1, pool.model.spec.hidden_size, dtype=pool.model.dtype, device=device)

    @property
    def tensors(self) -> list[Tensor]:
        """The inputs, for the signatures of steps."""
        return [self.row_B, self.start_B, self.valid_B, self.last_B, self.hidden_1D]

    def set(self, chunk: Chunk) -> None:
        """Fills the inputs for a chunk."""
        count = len(chunk.token_ids)
        self.row_B.fill_(chunk.slot)
        self.start_B.fill_(chunk.start)
        self.valid_B.fill_(count)
        self.last_B.fill_(count - 1)


class PrefillStep:
    """One static chunk length; `run` is what a graph captures."""

    def __init__(self, pool: Pool, inputs: PrefillInputs, length: int) -> None:
        self._pool, self._inputs = pool, inputs
        self._ids_BW = torch.zeros(1, length, dtype=torch.int64, device=pool.device)

    @property
    def tensors(self) -> list[Tensor]:
        """The step's inputs, for its signature."""
        return [*self._pool.tensors, *self._inputs.tensors, self._ids_BW]

    def set_tokens(self, token_ids: tuple[int, ...]) -> None:
        """Fills the chunk's ids; rows past them keep what they held and are masked."""
        write(self._ids_BW[0, : len(token_ids)], token_ids)

    def run(self) -> None:
        """Forward of the chunk; leaves the last token's hidden state in the shared inputs."""
        pool, inputs = self._pool, self._inputs
        table_BN = pool.state.block_table_SN[inputs.row_B]
        width, block_size = self._ids_BW.shape[1], pool.settings.block_size
        span = plan_span(table_BN, inputs.start_B, width, block_size, valid_B=inputs.valid_B)
        rows = Rows(Part(span, inputs.row_B, inputs.valid_B))
        hidden_TD, features_TF = pool.model.forward(self._ids_BW.flatten(), rows, pool.states, pool.context.taps)
        pool.context.write(features_TF, rows, pool.draft_kv)
        pool.states.commit(inputs.row_B, inputs.valid_B)
        inputs.hidden_1D.copy_(hidden_TD[inputs.last_B])


class FirstTokenStep:
    """Chooses the first token of a request with the rule of every other token: an accept without drafts."""

    def __init__(self, pool: Pool, inputs: PrefillInputs, mode: Mode, ring_TV: Tensor | None) -> None:
        device = pool.device
        self._pool, self._inputs, self._mode, self._ring_TV = pool, inputs, mode, ring_TV
        self._drafts_BK = torch.full((1, 0), -1, dtype=torch.int64, device=device)
        self.noise_index_T = torch.zeros(1, dtype=torch.int64, device=device)
        self.result = RoundResult.allocate(1, 1, device)
        self.logits_BWV = torch.empty(0)

    @property
    def tensors(self) -> list[Tensor]:
        """The step's inputs, for its signature."""
        return [*self._pool.tensors, *self._inputs.tensors, self.noise_index_T, self.result.tokens_BW]

    def run(self) -> None:
        """Logits, accept, commit; leaves the outcome in `result` and the raw logits in `logits_BWV`."""
        pool, inputs = self._pool, self._inputs
        self.logits_BWV = pool.logits(inputs.hidden_1D)[None]
        slots = pool.state.slots
        accept(self.logits_BWV, self._drafts_BK, inputs.row_B, slots, self.result, self._noise(), self._mode)

    def _noise(self) -> Tensor | None:
        if self._mode == "greedy" or self._ring_TV is None:
            return None
        return self._ring_TV.index_select(0, self.noise_index_T).view(1, 1, -1)
