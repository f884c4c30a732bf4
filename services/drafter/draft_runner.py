"""Drafts one round: reads its rows from the arena, proposes tokens, and writes them, then their tags, into the mailbox.

Drafts of a row are a chain, or a tree where a round asks for nodes.

Suffixes: S slots + 1, B rows of the bucket, K draft tokens.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from services.common.device.graph import CaptureCost, Counters, StepGraphs
from services.common.kernels.ahead import compile_steps
from services.common.kernels.mailbox import write_mailbox
from services.common.serving.progress import STEPS, Progress
from services.drafter.arena_view import ArenaView
from services.drafter.handoff.protocol import Handoff
from services.drafter.proposers import Proposer


class DraftRunner:
    """One step per bucket, width, and chain or tree, captured once.

    A round changes only the contents of the step's inputs (I3, I4)."""

    def __init__(
        self, shared: ArenaView, proposer: Proposer, generation: int, graphs: StepGraphs, handoff: Handoff
    ) -> None:
        self._shared = shared
        self._proposer = proposer
        self._graphs = graphs
        self._handoff = handoff
        self._stamp_2 = torch.tensor([0, generation], dtype=torch.int64, device=shared.tag_S3.device)

    @property
    def counters(self) -> Counters:
        """Captures and replays so far."""
        return self._graphs.counters

    @property
    def capture_cost(self) -> CaptureCost:
        """What capturing every step took and holds."""
        return self._graphs.cost

    @torch.inference_mode()
    def warm_up(
        self, buckets: Sequence[int], widths: Sequence[int], threads: int = 1, trees: Sequence[int] = ()
    ) -> None:
        """Captures every step, largest first, and runs it once, so that the first round is as quick as any.

        There are chains of `widths`, and trees of as many nodes as `trees` say. With more than one of `threads`
        kernels are compiled before.
        """
        tensors = [*self._shared.tensors(), self._stamp_2]
        kinds = [*((width, False) for width in widths), *((width, True) for width in trees)]
        shapes = [(b, *kind) for kind in sorted(kinds, reverse=True) for b in sorted(buckets, reverse=True)]
        steps = {
            shape: partial(_draft_round, self._shared, self._proposer, self._handoff, self._stamp_2, *shape)
            for shape in shapes
        }
        if threads > 1 and self._graphs.compiles:
            with self._graphs.aside():
                compile_steps(steps.values(), threads)
            self._graphs.warm = True
        progress = Progress(STEPS, len(steps))
        for shape, step in steps.items():
            self._graphs.capture(shape, step, tensors)
            self._graphs.replay(shape)
            progress.add()
        self._graphs.settle()
        self._stamp_2[0].fill_(0)

    @torch.inference_mode()
    def draft(self, number: int, bucket: int, width: int, nodes: bool = False, behind_prompts: bool = False) -> None:
        """Fills the mailbox for round `number`; returns when it is filled, or, with flags, when the draft is enqueued.

        Raises:
            KeyError: no step was captured for such a round.
        """
        self._handoff.begin(number, bucket, behind_prompts)
        # Behind the wait: where processes take turns, a kernel that could run at once would cost two switches of the
        # GPU during the target's verify. Assigning instead would make the host wait for the draft before, which reads
        # the stamp.
        self._stamp_2[0].fill_(number)
        self._graphs.replay((bucket, width, nodes))
        self._handoff.end(number)


def _draft_round(
    shared: ArenaView, proposer: Proposer, handoff: Handoff, stamp_2: Tensor, bucket: int, width: int, nodes: bool
) -> None:
    handoff.hold(stamp_2, bucket)
    rows_B = shared.rows_B[:bucket]
    mailbox = shared.tokens_SK, shared.tag_S3
    if not nodes:
        drafts_BK = proposer.propose(shared, rows_B, width)
        write_mailbox(drafts_BK, rows_B, shared.epoch_S, stamp_2, *mailbox)
        return
    assert shared.parents_SK is not None, "an arena for trees has a place for parents"
    drafts_BK, parents_BK = proposer.nodes(shared, rows_B, width)
    write_mailbox(drafts_BK, rows_B, shared.epoch_S, stamp_2, *mailbox, parents_BK, shared.parents_SK)
