"""Every value that cannot work is refused by Helm, with a sentence that names its place and what is wanted there."""

from typing import Any

import pytest
from helm_python import HelmError

from tests.deploy.full.charts import BASE, render
from tests.deploy.refused import HELPS, TOGETHER, VALUES, pointer
from tests.deploy.test_values import merged, with_value


@pytest.mark.parametrize(("path", "value"), VALUES)
def test_the_schema_says_what_it_wants(path: str, value: Any) -> None:
    with pytest.raises(HelmError) as refused:
        render(merged(with_value(path, value), {} if path.startswith(("image", "model")) else BASE))
    sentence = str(refused.value)
    # An unknown name is told at the group that does not have it.
    assert f"at '{pointer(path)}" in sentence or f"'{path.split('.')[-1]}' not allowed" in sentence
    assert HELPS.search(sentence), sentence


@pytest.mark.parametrize(("values", "place", "way_out"), TOGETHER)
def test_what_cannot_work_together_is_told(values: dict[str, Any], place: str, way_out: str) -> None:
    with pytest.raises(HelmError) as refused:
        render(merged(BASE, values))
    sentence = str(refused.value)
    assert f"\n- at '{place}': " in sentence
    assert way_out in sentence
    assert ", want " in sentence or ";" in sentence


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(HelmError) as refused:
        render({"gateway": {"port": 9100}, "tls": {"clientCASecretName": "ca"}})
    assert str(refused.value).count("\n- at '") == 4
