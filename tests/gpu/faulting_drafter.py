"""A drafter whose thirtieth draft writes where it must not: a fault that no process of its context survives."""

# mypy: allow-untyped-defs, allow-untyped-decorators

import sys
from itertools import count
from unittest import mock

import triton
import triton.language as tl

from services.drafter.__main__ import main as drafter_main
from services.drafter.draft_runner import DraftRunner

AT_DRAFT = 30
NOBODYS = 1 << 44


def main() -> int:
    """Runs until SIGTERM; returns the exit code."""
    drafts, draft = count(1), DraftRunner.draft
    _write.warmup(NOBODYS, grid=(1,))  # a compiler's run would be taken for a drafter that hangs

    def faulting(pacer: DraftRunner, number: int, bucket: int, width: int) -> None:
        if next(drafts) == AT_DRAFT:
            _write[(1,)](NOBODYS)
        draft(pacer, number, bucket, width)

    with mock.patch.object(DraftRunner, "draft", faulting):
        return drafter_main()


@triton.jit
def _write(address):  # noqa: ANN001, ANN202
    tl.store(address.to(tl.pointer_type(tl.int32)), 1)


if __name__ == "__main__":
    sys.exit(main())
