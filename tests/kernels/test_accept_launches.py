"""What decides the order of a sum in choosing a token is the same at every number of rows; launches are recorded."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from services.common.kernels.accept import RoundResult, SlotState, floor, kernel

VOCAB = 5000
KERNELS = {
    kernel: ("score_kernel", "best_kernel", "commit_kernel"),
    floor: ("begin_kernel", "sum_kernel", "narrow_kernel", "gather_kernel", "floor_kernel"),
}


class Recorder:
    """Takes the place of a kernel and notes its constants and options instead of running it."""

    def __init__(self, name: str, original: Any, launches: list[tuple[str, Any]]) -> None:
        self.arg_names = original.arg_names
        self._name, self._launches = name, launches

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return self._launch

    def _launch(self, *args: Any, **named: Any) -> None:
        decided = {name: value for name, value in named.items() if not isinstance(value, torch.Tensor)}
        self._launches.append((self._name, sorted(decided.items())))


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for module, names in KERNELS.items():
        for name in names:
            monkeypatch.setattr(module, name, Recorder(name, getattr(module, name), found))
    return found


def chosen(batch: int, width: int, launches: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The launches of one choice of tokens, each once; only the last ones depend on the width."""
    launches.clear()
    state = SlotState.allocate(1, VOCAB, 64)
    rows_B, drafts_BK = torch.zeros(batch, dtype=torch.int32), torch.zeros((batch, width - 1), dtype=torch.int64)
    kernel.accept(
        torch.zeros((batch, width, VOCAB)), drafts_BK, rows_B, state, RoundResult.allocate(batch, width), None, "full"
    )
    return list(dict.fromkeys((name, tuple(constants)) for name, constants in launches))


@pytest.mark.parametrize("width", [1, 4])
def test_sums_are_cut_alike_at_every_number_of_rows(width: int, launches: list[tuple[str, Any]]) -> None:
    alone = chosen(1, width, launches)
    assert len(alone) == 9
    for batch in (2, 16, 17, 64, 65, 130):
        assert chosen(batch, width, launches) == alone


def test_sums_are_cut_alike_at_every_width(launches: list[tuple[str, Any]]) -> None:
    def cuts(width: int) -> list[tuple[str, Any]]:
        found = chosen(2, width, launches)
        return [
            (name, [pair for pair in pairs if not pair[0].startswith(("WIDTH", "DRAFTS"))]) for name, pairs in found
        ]

    assert cuts(1) == cuts(4) == cuts(16)
