"""A drafter whose steps stamp when they may begin, when they have drafted, and when their drafts are written."""

from __future__ import annotations

import sys
from typing import Any
from unittest import mock

from torch import Tensor

from services.common.kernels.mailbox import write_mailbox
from services.drafter import attachment
from services.drafter.__main__ import main as drafter_main
from services.drafter.arena_view import ArenaView
from services.drafter.handoff.protocol import Handoff
from services.drafter.proposers import Proposer
from tests.bench.gpu.parts.stamps import Point, Stamps


def main() -> int:
    """Runs until SIGTERM; returns the exit code."""
    stamps, draft = Stamps(), attachment._draft_round

    def stamped(
        shared: ArenaView, proposer: Proposer, handoff: Handoff, stamp_2: Tensor, bucket: int, width: int, nodes: bool
    ) -> None:
        stamps.step = bucket, width
        hold = handoff.hold

        def held(*args: Any) -> None:
            hold(*args)
            stamps.at(Point.ASKED)

        with mock.patch.object(handoff, "hold", held):
            draft(shared, proposer, handoff, stamp_2, bucket, width, nodes)
        stamps.at(Point.DRAFTS_WRITTEN)
        stamps.step = None

    def written(*args: Any) -> None:
        stamps.at(Point.DRAFTED)
        write_mailbox(*args)

    with (
        mock.patch("services.drafter.attachment._draft_round", stamped),
        mock.patch("services.drafter.attachment.write_mailbox", written),
    ):
        try:
            return drafter_main()
        finally:
            stamps.leave("drafter")


if __name__ == "__main__":
    sys.exit(main())
