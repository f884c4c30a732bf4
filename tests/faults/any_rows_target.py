"""A target whose rounds have any form that it captured, drawn anew each time, and whose requests have any whole pieces.

What a policy of widths would choose depends on times of the machine. Here trees, chains, and chains of any lengths come
in turn.
"""

import random
import sys
from collections.abc import Sequence
from typing import Any
from unittest import mock

from services.target.__main__ import main as target_main
from services.target.core.width import Ragged, Width
from services.target.scheduling.width.width import AdaptiveWidth, adaptive_policy

DRAWN = "rounds have any form"
_SEED = 65


class AnyRows(AdaptiveWidth):
    """Draws what a policy chooses; learns as it does."""

    random = random.Random(_SEED)

    def choose(self, bucket: int, rows: int, context: int = 0) -> Width:
        """Any width with drafts that suits so many rows."""
        super().choose(bucket, rows, context)
        return self.random.choice([one for one in self.widths[1:] if not isinstance(one, Ragged) or one.fits(rows)])

    def takes(self, width: Ragged, uids: Sequence[int]) -> tuple[int, ...]:
        """Whole pieces, at least one each; some are left as padding."""
        counts, left = [1] * len(uids), width.pieces - len(uids)
        for place in self.random.sample(range(len(uids)), len(uids)):
            more = self.random.randint(0, min(int(width) // width.grain - 1, left))
            counts[place], left = 1 + more, left - more
        return tuple(width.grain * count for count in counts)


def drawn(*measured: Any) -> AnyRows:
    """In place of a target's policy."""
    usual = adaptive_policy(*measured)
    kinds = sorted({type(width).__name__ for width in usual.widths})
    print(f"{DRAWN}: {', '.join(kinds)}", file=sys.stderr, flush=True)
    return AnyRows(usual.widths, usual.costs, usual.acceptance)


def main() -> int:
    """Runs until it ends by itself; returns the exit code."""
    with mock.patch("services.target.build_device.adaptive_policy", drawn):
        return target_main()


if __name__ == "__main__":
    sys.exit(main())
