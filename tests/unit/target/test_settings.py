"""What a target's settings come to."""

from typing import Any

import pytest

from services.common.pair.handoff import HandoffMode
from services.common.request.errors import PacelineError
from services.target.settings import TargetSettings


@pytest.mark.parametrize(
    ("settings", "mode"),
    [
        ({}, HandoffMode.SOCKET),
        ({"device": "cuda"}, HandoffMode.FLAGS),
        ({"handoff": "host"}, HandoffMode.HOST),
        ({"device": "cuda", "handoff": "host"}, HandoffMode.HOST),
        ({"handoff": "wire"}, HandoffMode.WIRE),
        ({"drafter_memory": "none"}, HandoffMode.WIRE),
        ({"device": "cuda", "drafter_memory": "none"}, HandoffMode.WIRE),
    ],
    ids=str,
)
def test_the_hand_off_follows_from_device_memory_and_wish(settings: dict[str, Any], mode: HandoffMode) -> None:
    assert TargetSettings(model="m", **settings).handoff_mode is mode


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"exact": "sometimes"}, "must be one of fallback, strict, off"), ({"exact": "strict"}, "on a GPU only")],
    ids=str,
)
def test_rows_are_compared_in_one_of_three_modes_and_strictly_on_a_gpu(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(PacelineError, match=words) as refusal:
        TargetSettings(model="m", **settings)
    assert refusal.value.field == "exact"
    assert TargetSettings(model="m", device="cuda", exact="strict").exact == "strict"


def test_trees_are_for_a_cpu_and_may_have_more_nodes_than_a_chain_has_rows() -> None:
    with pytest.raises(PacelineError, match="no kernels for a GPU yet") as refusal:
        TargetSettings(model="m", device="cuda", nodes=True)
    assert refusal.value.field == "nodes"
    assert TargetSettings(model="m").draft_widths == (1, 4, 8)
    assert TargetSettings(model="m", nodes=True).draft_widths == (1, 4, 8, 16)
    assert TargetSettings(model="m", nodes=True, widths=(1, 6)).draft_widths == (1, 6)


def test_a_cpu_offers_the_types_in_which_it_is_exact() -> None:
    with pytest.raises(PacelineError, match="bfloat16 is not exact on a CPU: take float32") as refusal:
        TargetSettings(model="m", dtype="bfloat16")
    assert refusal.value.field == "dtype"
    for device, dtype in (("cuda", "bfloat16"), ("cpu", "float32"), ("cpu", "float64")):
        assert TargetSettings(model="m", device=device, dtype=dtype).dtype == dtype
