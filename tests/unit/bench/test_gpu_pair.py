"""Both processes of a measured pair are told of what the drafter's weights are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.gpu import pair
from tests.bench.gpu.pair import PairOptions, ServedPair
from tests.bench.gpu.rig import RigSettings
from tests.bench.gpu.shapes import TINY


@pytest.mark.parametrize("weights", ["dtype", "int8"])
def test_the_target_plans_memory_for_the_weights_of_the_drafter(
    weights: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: dict[str, list[str]] = {}
    monkeypatch.setattr(pair, "ServiceProcess", lambda name, command, *_: commands.setdefault(name, command))
    settings = RigSettings(TINY, "cpu", "float32", 2, (1, 4), 256, 1 << 28)
    ServedPair(settings, tmp_path, PairOptions(drafter_weights=weights))
    said = {name: dict(zip(command[1::2], command[2::2], strict=True)) for name, command in commands.items()}
    assert said["drafter"]["--weights"] == said["target"]["--drafter-weights"] == weights
