"""What rounds were measured to take is measured once for all starts of one key."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from services.target.core.width import Ragged, Tree
from services.target.device import warm_up
from services.target.device.times import KeptTimes
from tests.lossless.pairs import made_up_pair
from tests.lossless.rig import Rig, RigSettings

WIDTHS = (1, 4, 8, Tree(8), Ragged(8, 32, 4))


def test_a_later_start_finds_what_an_earlier_one_has_kept(tmp_path: Path) -> None:
    first = KeptTimes("key", tmp_path)
    assert first.recall("contexts", WIDTHS) is None
    micros = {width: 0.5 + place for place, width in enumerate(WIDTHS)}
    first.keep("contexts", micros)
    first.keep("rounds", {(1, 4): 900.0})
    later = KeptTimes("key", tmp_path)
    found = later.recall("contexts", WIDTHS)
    assert found is not None and list(found.items()) == list(micros.items())
    assert later.recall("rounds", [(1, 4)]) == {(1, 4): 900.0}
    assert KeptTimes("other", tmp_path).recall("contexts", WIDTHS) is None


def test_without_a_key_nothing_is_kept(tmp_path: Path) -> None:
    KeptTimes("", tmp_path).keep("rounds", {1: 2.0})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"rounds": 3}', '{"rounds": ["a"]}', '{"rounds": [NaN]}', '{"rounds": [-1]}']
)
def test_a_file_that_is_none_counts_for_nothing(text: str, tmp_path: Path) -> None:
    KeptTimes("key", tmp_path).keep("rounds", {1: 2.0})
    (file,) = tmp_path.rglob("key.times.json")
    assert json.loads(file.read_text()) == {"rounds": [2.0]}
    file.write_text(text)
    assert KeptTimes("key", tmp_path).recall("rounds", [1]) is None


def test_rounds_that_were_measured_before_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure: Callable[..., int] = warm_up._measure
    repeats: list[int] = []

    def noted(*arguments: int) -> int:
        repeats.append(arguments[-1])
        return measure(*arguments)

    monkeypatch.setattr(warm_up, "_measure", noted)
    pair, found = made_up_pair(), []
    for _ in range(2):
        with Rig(pair.target, pair.drafter, RigSettings(width=4, slots=2, buckets=(1, 2))) as rig:
            steps, pool = rig.runner.steps, rig.runner.pool
            steps.graphs._captured.clear()
            found.append(warm_up.warm_up(pool, steps, times=KeptTimes("key", tmp_path)))
    shapes = len(found[0])
    assert found[0] == found[1] and repeats[shapes : 2 * shapes] == [3] * shapes and repeats[-shapes:] == [1] * shapes
