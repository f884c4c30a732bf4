"""What the host is told of a tree: the accepted path, its places among siblings, and the path of first children."""

from types import SimpleNamespace
from typing import Any, cast

import torch

from services.common.kernels.accept import RoundResult
from services.target.device.outputs import RoundOutput
from services.target.device.state import Rows

PARENTS = [[0, 0, 1, 2, 3], [0, 1, 2, 3, 4]]
"""Of five nodes: two children of the anchor, one of each, and one behind; then a chain whose first two are there."""


def landed(parents_BK: torch.Tensor | None) -> list[Any]:
    result = RoundResult.allocate(2, 6, trees=parents_BK is not None)
    result.tokens_BW[0, :3] = torch.tensor([11, 12, 13])
    result.tokens_BW[1, :2] = torch.tensor([21, 22])
    for column, values in (("count_B", (3, 2)), ("accepted_B", (2, 1)), ("drafted_B", (5, 2)), ("end_B", (0, 0))):
        getattr(result, column).copy_(torch.tensor(values))
    if result.path_BW is not None and result.parents_BK is not None and parents_BK is not None:
        result.path_BW[0, :3] = torch.tensor([0, 2, 4])
        result.parents_BK.copy_(parents_BK)
    seats = [SimpleNamespace(epoch=1, commit=lambda tokens: None, spec=SimpleNamespace(logprobs=None))] * 2
    output = RoundOutput(torch.device("cpu"), 0)
    output.copy(cast("Rows", list(enumerate(seats))), result, torch.empty(0))
    return list(output.land())


def test_a_tree_tells_its_path_and_what_a_chain_would_have_been() -> None:
    first, second = landed(torch.tensor(PARENTS))
    assert (first.path, first.children, first.trunk) == ((2, 4), (2, 1), (1, 3, 5))
    assert (second.path, second.children, second.trunk) == ((1,), (1,), (1, 2))


def test_a_chain_tells_nothing_of_trees() -> None:
    for outcome in landed(None):
        assert (outcome.path, outcome.children, outcome.trunk) == ((), (), ())
