"""One verify round of static shape [bucket, W]: copy the mailbox, one forward, accept, commit, publish (I2, I3, I6).

Row j of a span has position n + j and predicts position n + j + 1; row 0 is the anchor. Where rows are nodes of trees
their depths stand in the place of j, and what the accepted ones have left moves to its positions at the end. Pad rows
point at the pad slot: they write to the pad block, are never active and commit nothing. Where chains differ in length
rows are those of pieces, which a table gives to sequences; accept sees a sequence's pieces as one span.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from services.common.device.staging import write
from services.common.kernels.accept import RoundResult, accept
from services.common.kernels.mailbox import publish_slots, read_mailbox
from services.common.kernels.nodes import Nodes, keep_path
from services.common.kernels.prepare_span import prepare_span
from services.common.kernels.row_table import RowTable
from services.common.kernels.span_attention.span import OPEN, Mask
from services.common.model.states.states import Part, Rows
from services.common.pair.arena.flags import setter
from services.common.pair.flag_wait import FlagWait
from services.target.device.context import Pool
from services.target.device.mask_gate import MaskGate
from services.target.device.synthetic import SyntheticAcceptance, SyntheticNodes


class SideStream:
    """A second stream that branches off the present one and is joined later; without a GPU all work runs in order.

    Tensors that the work reads must live until the join.
    """

    def __init__(self, device: torch.device, shared: bool) -> None:
        """All work also runs in order unless processes share the GPU.

        Where processes take turns, a graph with a second branch that waits for another process keeps the GPU until its
        time slice is over: 1.1 ms a round on an H200.
        """
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" and shared else None

    @contextmanager
    def start(self) -> Iterator[None]:
        """Kernels launched within run after those already on the present stream, and beside those that follow there."""
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            yield

    def join(self) -> None:
        """Makes the present stream wait for the side stream."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)


Mode = Literal["greedy", "full"]


class RoundInputs:
    """Static inputs of every round: rows `[max bucket]`, and (round, generation) that a draft's tag must state.

    `version` counts how often the rows have changed. `gate` makes steps that read drafts wait for them, and `mask_gate`
    steps of rows that masks rule for the masks. `beside` is the side stream on which the draft context is written while
    the head is multiplied and tokens are committed.
    """

    def __init__(self, pool: Pool, gate: FlagWait | None = None) -> None:
        settings, device = pool.settings, pool.device
        self.gate = gate
        self.mask_gate = MaskGate(pool.state.slots, settings.buckets[-1])
        self.version = 0
        self._rows: tuple[int, ...] = ()
        self._pad_slot = settings.pad_slot
        self.rows_B = torch.full((settings.buckets[-1],), self._pad_slot, dtype=torch.int32, device=device)
        self.expected_2 = torch.zeros(2, dtype=torch.int64, device=device)
        number, self._generation = self.expected_2.unbind()
        self.set_round = setter(number)
        """Sets the round whose drafts alone count."""
        # There is a gate only where processes share the GPU.
        self.beside = SideStream(device, shared=gate is not None and len(pool.context.taps) > 0)

    def set_generation(self, generation: int) -> None:
        """Only drafts of this attachment count."""
        self._generation.fill_(generation)

    def set_rows(self, rows: tuple[int, ...]) -> None:
        """Writes the round's slots first and the pad slot into every other row, if the slots have changed."""
        if rows == self._rows:
            return
        padded = [*rows, *[self._pad_slot] * (self.rows_B.shape[0] - len(rows))]
        write(self.rows_B, padded)
        self._rows, self.version = rows, self.version + 1


class Form(NamedTuple):
    """How the rows of a step lie.

    `short` cuts attention for short contexts. With `trees` rows are nodes, else each follows the one before. With a
    `table` chains have as many rows as the step is wide at most, and the forward has the table's rows.
    """

    short: bool = False
    trees: bool = False
    table: RowTable | None = None


CHAINS = Form()


class VerifyStep:
    """The work of one (bucket, width, mode), once more for short contexts; `run` is what a graph captures."""

    def __init__(
        self,
        pool: Pool,
        inputs: RoundInputs,
        bucket: int,
        width: int,
        mode: Mode,
        ring_TV: Tensor | None,
        form: Form = CHAINS,
    ) -> None:
        """Its rows lie as `form` says."""
        device = pool.device
        self._pool, self._inputs, self._mode = pool, inputs, mode
        self._bucket, self._width = bucket, width
        self._rows_B = inputs.rows_B[:bucket]
        self._drafts_BK = torch.full((bucket, width - 1), -1, dtype=torch.int64, device=device)
        self._ring_TV, self._short = ring_TV, form.short
        rates = pool.settings.synthetic_acceptance
        lines = pool.settings.slots + 1
        chains, trees = bool(rates) and width > 1 and not form.trees, bool(rates) and form.trees
        self._synthetic = SyntheticAcceptance(rates, width, lines, device) if chains else None
        siblings = pool.settings.synthetic_siblings
        self._synthetic_nodes = SyntheticNodes(rates, siblings, lines, device) if trees else None
        self._beside = inputs.beside
        self.noise_index_T = torch.zeros(bucket * width, dtype=torch.int64, device=device)
        self.table = form.table
        self.result = RoundResult.allocate(bucket, width, device, trees=form.trees, table=form.table)
        self._nodes = Nodes.allocate(bucket, width, device, self.result.parents_BK) if form.trees else None
        self.logits_BWV = torch.empty(0)

    @property
    def tensors(self) -> list[Tensor]:
        """The step's inputs, for its signature."""
        mine = [self._rows_B, self._drafts_BK, self.noise_index_T, self._inputs.expected_2]
        mine += [] if self.table is None else [self.table.packed_N]
        return [*self._pool.tensors, *mine, self.result.tokens_BW]

    def run(self, layers: bool = True) -> None:
        """Forward, accept, commit; leaves the outcome in `result` and the raw logits in `logits_BWV`.

        It publishes at once what it committed, for the drafts of a next round with the same rows. Without `layers` it
        launches what is around them: enough before a step is recorded of whose layers another mode's has launched all.
        """
        pool, state = self._pool, self._pool.state
        drafts_BK = self._take()
        slots, size = state.slots, pool.settings.block_size
        ids_BW, span = prepare_span(
            self._rows_B, slots.anchor_S, slots.length_S, state.block_table_SN, drafts_BK, size, self._mask, self.table
        )
        if self._short:
            span = replace(span, short=True)
        rows = Rows(Part(span, self._rows_B if self.table is None else self.table.seats_P))
        if layers:
            hidden_TD, features_TF = pool.model.forward(ids_BW.flatten(), rows, pool.states, pool.context.taps)
        else:
            hidden_TD, features_TF = self._blank(ids_BW.numel())
        with self._beside.start():
            states_TD = pool.write_context(ids_BW.flatten(), features_TF, rows)
        logits_TV = pool.logits(hidden_TD)
        self.logits_BWV = logits_TV.view(*ids_BW.shape, -1)
        if self._synthetic is not None:
            self._synthetic.apply(self.logits_BWV, drafts_BK, self._rows_B, slots, self.table)
        if self._synthetic_nodes is not None and self._nodes is not None:
            self._synthetic_nodes.apply(self.logits_BWV, drafts_BK, self._rows_B, slots, self._nodes)
        noise_BWV = self._noise()
        rows_B = self._rows_B if self._mode == "greedy" else self._behind_masks(noise_BWV)
        accept(self.logits_BWV, drafts_BK, rows_B, slots, self.result, noise_BWV, self._mode, self._nodes, self.table)
        self._beside.join()
        if self.result.path_BW is not None:  # behind the draft context, which moves too
            keep_path(self.result.path_BW, self.result.count_B, span.slots_T, pool.paged)
        if pool.seeds is not None and states_TD is not None:
            pool.seeds.commit(states_TD, self._rows_B, self.result.count_B)
            pool.seeds.publish()
        publish_slots(self._inputs.rows_B, slots.length_S, slots.anchor_S, pool.mapped)

    def _behind_masks(self, noise_BWV: Tensor | None) -> Tensor:
        """The rows for accept, once their masks are made; for rows of pieces they are made without a choice."""
        gate = self._inputs.mask_gate
        if self.table is None:
            gate.tell(self.logits_BWV, self._rows_B, noise_BWV, self._nodes)
        return gate.hold(self._rows_B)

    def _blank(self, count: int) -> tuple[Tensor, Tensor]:
        """Hidden states [T, D] and features [T, F] of no forward of so many rows."""
        pool = self._pool
        hidden_TD = torch.zeros((count, pool.model.spec.hidden_size), dtype=pool.model.dtype, device=pool.device)
        return hidden_TD, hidden_TD.repeat(1, len(pool.context.taps))

    @property
    def _mask(self) -> Mask:
        """What a row sees of its own span."""
        nodes = self._nodes
        if nodes is None:
            return OPEN
        return Mask(ancestors_BW=nodes.ancestors_BW, lineage_BWW=nodes.lineage_BWW, depths_BW=nodes.depths_BW)

    def _take(self) -> Tensor:
        if self._width == 1:
            return self._drafts_BK
        pool, inputs = self._pool, self._inputs
        if inputs.gate is not None and inputs.gate.serves(self._bucket):
            inputs.gate.hold(inputs.expected_2)
        drafts_BK = read_mailbox(
            pool.mailbox_SK,
            pool.tag_S3,
            self._rows_B,
            pool.state.epoch_S,
            inputs.expected_2,
            pool.model.spec.vocab_size,
            self._drafts_BK,
        )
        if self._nodes is not None:
            pool.read_nodes(self._rows_B, drafts_BK, self._nodes)
        return drafts_BK

    def _noise(self) -> Tensor | None:
        if self._mode == "greedy" or self._ring_TV is None:
            return None
        index_BW = self.noise_index_T.view(self._bucket, self._width)
        if self._nodes is not None:
            index_BW = index_BW.gather(1, self._nodes.depths_BW)
        return self._ring_TV.index_select(0, index_BW.flatten()).view(self._bucket, self._width, -1)
