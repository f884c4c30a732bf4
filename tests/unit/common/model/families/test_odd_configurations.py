"""Configurations with a value that nobody expects: each is read, or refused in one line by name."""

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.common.model import ModelError
from services.common.model.families import read_target_spec
from services.common.model.weights.weights import model_shapes
from tests.unit.common.model.families import test_gemma3, test_gemma4, test_laguna

SEED, SAMPLE, LONGEST = 70, 60, 600
PUBLISHED: dict[str, dict[str, Any]] = {
    "gemma 3": test_gemma3.SMALL,
    "gemma 3 beside images": test_gemma3.WITH_IMAGES,
    "gemma 4": test_gemma4.TEXT,
    "gemma 4 with experts": test_gemma4.EXPERTS,
    "laguna": test_laguna.XS,
    "laguna later": test_laguna.LATER,
}
SLIDING, FULL = "sliding_attention", "full_attention"
MISSING = object()
ODD: tuple[object, ...] = (
    MISSING, None, 0, -1, 1, 3, 1e9, 1 << 40, 1 << 70, 0.5, 1e308, 1e-320, float("nan"), float("inf"), True, "", "512",
    SLIDING, [], [None], [FULL] * 3, [SLIDING, "chunked_attention"] * 20, [[1]], {}, {"x": 1}, {FULL: None, SLIDING: 1},
    {SLIDING: {"rope_type": "default", "rope_theta": 1e4}}, {FULL: {"rope_type": "proportional", "factor": 0}},
)  # fmt: skip


def places(values: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where keys are, nested ones too."""
    for key, value in values.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from places(value, (*above, key))


def changed(values: dict[str, Any], place: tuple[str, ...], value: object) -> dict[str, Any]:
    made = copy.deepcopy(values)
    inner = made
    for key in place[:-1]:
        inner = inner[key]
    if value is MISSING:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return made


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_value_that_nobody_expects_is_read_or_refused_in_one_line(name: str, full: bool, tmp_path: Path) -> None:
    """A sample of all values in all places, nested ones too: missing, null, of another kind, out of range."""
    published = PUBLISHED[name]
    cases = [(place, value) for place in places(published) for value in ODD]
    random.Random(SEED).shuffle(cases)
    refused = 0
    for place, value in cases if full else cases[:SAMPLE]:
        (tmp_path / "config.json").write_text(json.dumps(changed(published, place, value)))
        try:
            spec = read_target_spec(tmp_path)
        except ModelError as error:
            refused += 1
            told = str(error)
            assert "\n" not in told and len(told) <= LONGEST, (SEED, place, value)
        else:
            assert model_shapes(spec), (SEED, place, value)
    assert refused > SAMPLE // 3


@pytest.mark.parametrize(
    "name", ["GptOssForCausalLM", "Gemma3nForConditionalGeneration", "LagunaForTokenClassification"]
)
def test_other_families_with_windows_are_refused_by_name(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(test_laguna.XS | {"architectures": [name]}))
    with pytest.raises(ModelError, match=f"architectures: .*{name}.* is not supported, only"):
        read_target_spec(tmp_path)
