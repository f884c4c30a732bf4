"""A target whose own embedding changes in one place once it is loaded and shared, as by a fault of memory."""

import sys
from unittest import mock

from services.common.model import Target
from services.common.pair.arena import Arena
from services.target.__main__ import main as target_main
from services.target.drafting.shared_weights import SharedWeights


def main() -> int:
    """Runs until it ends by itself; returns the exit code."""
    share = SharedWeights.__init__

    def damaged(weights: SharedWeights, model: Target, arena: Arena) -> None:
        share(weights, model, arena)
        model.embed_VD[3, 0] += 1

    with mock.patch.object(SharedWeights, "__init__", damaged):
        return target_main()


if __name__ == "__main__":
    sys.exit(main())
