"""A drafter whose thirtieth draft reads where it must not: a fault that no process of its context survives."""

import sys
from itertools import count
from unittest import mock

import torch

from services.drafter.__main__ import main as drafter_main
from services.drafter.pacer import Pacer
from tests.gpu.kernels.devices import DEVICE

AT_DRAFT = 30


def main() -> int:
    """Runs until SIGTERM; returns the exit code."""
    drafts, draft = count(1), Pacer.draft

    def faulting(pacer: Pacer, number: int, bucket: int, width: int) -> None:
        if next(drafts) == AT_DRAFT:
            torch.zeros(1, device=DEVICE)[torch.full((1,), 1 << 40, device=DEVICE)]
        draft(pacer, number, bucket, width)

    with mock.patch.object(Pacer, "draft", faulting):
        return drafter_main()


if __name__ == "__main__":
    sys.exit(main())
