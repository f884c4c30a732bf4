"""What the host is told of a tree: the accepted path, its places among siblings, and what a chain would begin with."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from services.common.kernels.accept import RoundResult
from services.target.device.outputs import Landing, RoundOutput
from services.target.device.state import Rows

PARENTS = [[0, 0, 1, 2, 3], [0, 1, 2, 3, 4]]
"""Of five nodes: two children of the anchor, one of each, and one behind; then a chain whose first two are there."""


def seat() -> Any:
    return SimpleNamespace(epoch=1, commit=lambda tokens: None, spec=SimpleNamespace(logprobs=None))


def landed(parents_BK: torch.Tensor | None) -> list[Any]:
    result = RoundResult.allocate(2, 6, trees=parents_BK is not None)
    result.tokens_BW[0, :3] = torch.tensor([11, 12, 13])
    result.tokens_BW[1, :2] = torch.tensor([21, 22])
    for column, values in (("count_B", (3, 2)), ("accepted_B", (2, 1)), ("drafted_B", (5, 2)), ("end_B", (0, 0))):
        getattr(result, column).copy_(torch.tensor(values))
    if result.path_BW is not None and result.parents_BK is not None and parents_BK is not None:
        result.path_BW[0, :3] = torch.tensor([0, 2, 4])
        result.parents_BK.copy_(parents_BK)
    seats = [seat()] * 2
    output = RoundOutput(torch.device("cpu"), 0)
    output.copy(cast("Rows", list(enumerate(seats))), result, torch.empty(0))
    return list(output.land())


def test_a_tree_tells_its_path_and_what_a_chain_would_have_been() -> None:
    first, second = landed(torch.tensor(PARENTS))
    assert (first.path, first.children, first.trunk) == ((2, 4), (2, 1), (1, 3))
    assert (second.path, second.children, second.trunk) == ((1,), (1,), (1, 2))


@pytest.mark.parametrize("known", [0, 1, 3, 5])
def test_a_trunk_has_two_rows_of_those_that_were_offered(known: int) -> None:
    """The first child of the anchor's first child is row 4: with fewer drafts it was none."""
    result = RoundResult.allocate(3, 6, trees=True)
    assert result.parents_BK is not None
    for column, values in (("count_B", (1, 1, 1)), ("accepted_B", (0, 0, 0)), ("drafted_B", (5, known, 5))):
        getattr(result, column).copy_(torch.tensor(values))
    result.parents_BK.copy_(torch.tensor([[0, 1, 1, 1, 1], [0, 0, 0, 1, 1], [1, 1, 1, 1, 1]]))
    output = RoundOutput(torch.device("cpu"), 0)
    output.copy(cast("Rows", [(0, seat()), (1, seat())]), result, torch.empty(0))
    told = output.land()[1]
    assert (told.path, told.children) == ((), ())
    assert told.trunk == {0: (), 1: (1,), 3: (1,), 5: (1, 4)}[known]


def test_a_chain_tells_nothing_of_trees() -> None:
    for outcome in landed(None):
        assert (outcome.path, outcome.children, outcome.trunk) == ((), (), ())


def test_results_stay_where_they_landed_while_later_rounds_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next round's step writes over the same buffers on the device before the host has read these."""
    marks: list[int] = []
    monkeypatch.setattr(torch.cuda, "Event", lambda: SimpleNamespace(record=lambda: marks.append(1)))
    monkeypatch.setattr(torch, "empty", lambda numbers, dtype, pin_memory: torch.zeros(numbers, dtype=dtype))
    landings = [Landing(2 * (3 * 6 + 4)) for _ in range(2)]
    result = RoundResult.allocate(2, 6, trees=True)
    result.tokens_BW.zero_()
    result.count_B.fill_(2)
    outputs = []
    for landing in landings:
        output = RoundOutput(torch.device("cpu"), 0, landing)
        result.tokens_BW.add_(1)
        output.leave(cast("Rows", [(0, seat())]), SimpleNamespace(result=result, logits_BWV=torch.zeros(0)))
        output.fetch()
        outputs.append(output)
    assert [[outcome.tokens for outcome in output.land()] for output in outputs] == [[(1, 1)], [(2, 2)]]
    assert (len(marks), outputs[0].done) == (2, landings[0].done)
