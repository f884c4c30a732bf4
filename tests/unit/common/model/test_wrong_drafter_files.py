"""Every key of every layout of drafters with values that it cannot have: refused in one line that says what to take.

The layouts are those of `published_kinds` and of the tiny pairs: each key is left out, and given twenty other values.
"""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.common.model import ModelError
from services.common.model.drafters import checkpoint_shapes, read_any_spec
from tests.support.tiny_kinds import PAIRS

PUBLISHED = Path(__file__).parent / "published_kinds"
VALUES: tuple[Any, ...] = (
    ..., None, "", "x", -1, 0, 1, 3.5, float("inf"), float("nan"), 10**30, True, False, [], [1, "a"], [-1], [None],
    ["x"] * 3, {}, {"a": 1},
)  # fmt: skip
"""The first leaves the key out."""
Keys = tuple[str, ...]
SAMPLE = 8
BEHIND = {"speculators_model_type": "architectures", "transformer_layer_config": "num_hidden_layers",
          "num_target_layers": "target_layer_ids", "aux_hidden_state_layer_ids": "num_target_layers",
          "num_hidden_layers": "layer_types"}  # fmt: skip
"""A key without which another is what is wrong."""


def keys_of(config: dict[str, Any], before: Keys = ()) -> Iterator[Keys]:
    for name, value in config.items():
        yield (*before, name)
        if isinstance(value, dict):
            yield from keys_of(value, (*before, name))


def changed(config: dict[str, Any], keys: Keys, value: object) -> dict[str, Any]:
    """A configuration with another value at some depth, or without the key."""
    made = copy.deepcopy(config)
    holder = made
    for name in keys[:-1]:
        holder = holder[name]
    if value is ...:
        holder.pop(keys[-1], None)
    else:
        holder[keys[-1]] = value
    return made


def layouts(folder: Path) -> dict[str, dict[str, Any]]:
    found = {path.name: path / "config.json" for path in PUBLISHED.iterdir()}
    found |= {f"tiny {kind}": write(folder / kind, 3).drafter / "config.json" for kind, write in PAIRS.items()}
    return {name: json.loads(path.read_text()) for name, path in sorted(found.items())}


def test_wrong_values_are_refused_in_a_line(tmp_path: Path, full: bool) -> None:
    tried, refused, file = 0, 0, tmp_path / "own" / "config.json"
    file.parent.mkdir()
    cases = [
        (name, config, keys, value)
        for name, config in layouts(tmp_path).items()
        for keys in (*keys_of(config), ("a key that nobody knows",))
        for value in VALUES
    ]
    for name, config, keys, value in cases if full else cases[::SAMPLE]:
        file.write_text(json.dumps(changed(config, keys, value)))
        tried += 1
        try:
            checkpoint_shapes(read_any_spec(file.parent))
        except ModelError as error:
            told, refused = str(error), refused + 1
            named = {*keys, BEHIND.get(keys[-1], keys[-1])}
            assert "\n" not in told and len(told) < 600 and ": take " in told, (name, keys, value, told)
            assert any(key in told for key in named) or "conv_kernel_size" in told, (name, keys, value, told)
    assert refused > 0.75 * tried and tried > (5000 if full else 600), (refused, tried)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"speculators_model_type": "xpress"}, "'xpress' is not supported, only .*: take a drafter of one of these"),
        ({"speculators_model_type": "mtp"}, "in a folder of its own is not supported: take the target's own folder"),
        ({"architectures": ["Gemma4DSparkModel"]}, "'Gemma4DSparkModel'. is not supported, only .*, or n-gram drafts"),
        ({"architectures": ["MedusaModel"]}, "'MedusaModel'. is not supported, only .*: take a drafter of one"),
        ({"architectures": []}, "only .*: take a drafter of one of these"),
    ],
)  # fmt: skip
def test_a_kind_that_is_not_served_is_refused_with_what_to_take(
    config: dict[str, Any], told: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=told):
        read_any_spec(tmp_path)
