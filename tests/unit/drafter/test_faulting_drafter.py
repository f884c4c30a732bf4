"""The drafter that faults on a GPU: its drafts are those of the service, but for the fault."""

from inspect import signature
from typing import Any

from services.drafter.attachment import DraftRunner
from tests.gpu.faulting_drafter import AT_DRAFT, faulting


def test_one_draft_faults_however_an_attachment_asks_for_it() -> None:
    """Its first form took fewer arguments than rounds have, so that it never faulted."""
    asked, faults = list[tuple[Any, ...]](), list[int]()
    draft = faulting(lambda *round_: asked.append(round_), lambda: faults.append(len(asked)))
    rounds = [tuple(range(number, number + len(signature(DraftRunner.draft).parameters))) for number in range(40)]
    for one in rounds:
        draft(*one)
    assert (asked, faults) == (rounds, [AT_DRAFT - 1])
