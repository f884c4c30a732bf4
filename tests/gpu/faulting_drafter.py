"""A drafter whose thirtieth draft writes where it must not: a fault that no process of its context survives."""

# mypy: allow-untyped-defs, allow-untyped-decorators

import sys
from collections.abc import Callable
from itertools import count
from typing import Any
from unittest import mock

import triton
import triton.language as tl

from services.drafter.__main__ import main as drafter_main
from services.drafter.attachment import DraftRunner

AT_DRAFT = 30
NOBODYS = 1 << 44


def main() -> int:
    """Runs until SIGTERM; returns the exit code."""
    _write.warmup(NOBODYS, grid=(1,))  # a compiler's run would be taken for a drafter that hangs
    with mock.patch.object(DraftRunner, "draft", faulting(DraftRunner.draft, lambda: _write[(1,)](NOBODYS))):
        return drafter_main()


def faulting(draft: Callable[..., None], fault: Callable[[], object]) -> Callable[..., None]:
    """The same drafts, whatever they are asked with; one of them faults first."""
    drafts = count(1)

    def asked(*round_: Any) -> None:
        if next(drafts) == AT_DRAFT:
            fault()
        draft(*round_)

    return asked


@triton.jit
def _write(address):  # noqa: ANN001, ANN202
    tl.store(address.to(tl.pointer_type(tl.int32)), 1)


if __name__ == "__main__":
    sys.exit(main())
