"""Drafts and embeddings by which rows of a mixture choose experts of their own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from services.common.model.files.random_weights import RandomCheckpoint
from tests.bench.gpu import pair, scattered
from tests.bench.gpu.pair import PairOptions, ServedPair
from tests.bench.gpu.rig import RigSettings
from tests.bench.gpu.shapes import TINY


def test_a_row_has_so_many_tokens_and_others_than_its_neighbours() -> None:
    tokens_SN = scattered.tokens_of(4, 5000, 12)
    assert {len(row.unique()) for row in tokens_SN.unbind()} == {12} and tokens_SN.min() >= 2
    assert len(tokens_SN.unique()) > 40
    assert all(len(row.unique()) > 2000 for row in scattered.tokens_of(2, 5000, scattered.ROUTES["even"]).unbind())


def test_drafts_follow_the_row_and_its_length() -> None:
    """As many as the drafter has, and of its type; the same at the same place, whatever the company."""
    shared: Any = SimpleNamespace(length_S=torch.tensor([5, 5, 4099]), embed_VD=torch.zeros(900, 1))

    def propose(_: Any, __: Any, rows_B: Tensor, width: int) -> Tensor:
        return torch.full((len(rows_B), width - 1), 7, dtype=torch.int32)

    drawn = scattered.scattered(propose, 400)
    drafts_BK = drawn(None, shared, torch.tensor([0, 1, 2]), 8)  # type: ignore[arg-type]
    assert drafts_BK.shape == (3, 7) and drafts_BK.dtype == torch.int32
    assert not torch.equal(drafts_BK[0], drafts_BK[1])
    assert torch.equal(drawn(None, shared, torch.tensor([1]), 4), drafts_BK[1:2, :3])  # type: ignore[arg-type]
    shared.length_S += 1
    assert torch.equal(drawn(None, shared, torch.tensor([0]), 8)[0, :6], drafts_BK[0, 1:])  # type: ignore[arg-type]


@pytest.mark.parametrize("routes", ["own", "even"])
def test_embeddings_outweigh_layers_where_routes_are_asked_for(
    routes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(scattered.VARIABLE, routes)
    (tmp_path / "config.json").write_text("{}")
    checkpoint = RandomCheckpoint(tmp_path, torch.device("cpu"))
    names = "model.embed_tokens.weight", "model.layers.0.mlp.gate.weight"
    before = [checkpoint.read(name, (64, 64), torch.float32) for name in names]
    with scattered.outweighing_embeddings():
        after = [checkpoint.read(name, (64, 64), torch.float32) for name in names]
    assert torch.equal(after[1], before[1])
    assert torch.equal(after[0], before[0] * (1.0 if routes == "own" else 400.0))


@pytest.mark.parametrize(("routes", "module"), [("own", "services.drafter"), ("even", "tests.bench.gpu.scattered")])
def test_both_processes_know_the_routes(
    routes: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[Any, ...]] = []
    monkeypatch.setattr(pair, "ServiceProcess", lambda *given: made.append(given))
    settings = RigSettings(TINY, "cpu", "float32", 2, (1, 4), 256, 1 << 28)
    ServedPair(settings, tmp_path, PairOptions(routes=routes))
    assert [environment[scattered.VARIABLE] for *_, environment in made] == [routes, routes]
    assert next(command[0] for name, command, *_ in made if name == "drafter") == module
