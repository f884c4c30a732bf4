"""What a target's settings come to."""

from typing import Any

import pytest

from services.common.pair.handoff import HandoffMode
from services.common.request.errors import PacelineError
from services.target.scheduling.settings import PAUSE_S
from services.target.settings import LATENCY, THROUGHPUT, TargetSettings


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


def test_trees_may_have_more_nodes_than_a_chain_has_rows() -> None:
    assert TargetSettings(model="m").tree_widths == ()
    usual = {"cpu": (4, 8, 16), "cuda": (8, 16)}
    for device, sizes in usual.items():
        chains = TargetSettings(model="m", device=device).draft_widths
        trees = TargetSettings(model="m", device=device, nodes=True)
        assert (trees.draft_widths, trees.tree_widths) == (chains, sizes)
    asked: dict[str, dict[tuple[int, ...], tuple[int, ...]]] = {
        "cpu": {(1, 3): (3,), (1, 6): (6,), (1, 4, 8, 12): (4, 8, 12), (1,): ()},
        "cuda": {(1, 4): (4,), (1, 6): (6,), (1, 4, 8, 12): (8, 12), (1,): ()},
    }
    for device, every in asked.items():
        for widths, nodes in every.items():
            settings = TargetSettings(model="m", device=device, nodes=True, widths=widths)
            assert settings.tree_widths == nodes


def test_a_cpu_offers_the_types_in_which_it_is_exact() -> None:
    with pytest.raises(PacelineError, match="bfloat16 is not exact on a CPU: take float32") as refusal:
        TargetSettings(model="m", dtype="bfloat16")
    assert refusal.value.field == "dtype"
    for device, dtype in (("cuda", "bfloat16"), ("cpu", "float32"), ("cpu", "float64")):
        assert TargetSettings(model="m", device=device, dtype=dtype).dtype == dtype


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_latency_computes_prompts_in_small_packs_and_never_pauses_rows(device: str) -> None:
    throughput, latency = (TargetSettings(model="m", device=device, prefer=prefer) for prefer in (THROUGHPUT, LATENCY))
    assert throughput == TargetSettings(model="m", device=device), "the default"
    assert (latency.chunk_tokens, latency.pack_tokens) == (throughput.chunk_tokens // 4, throughput.pack_tokens // 4)
    assert throughput.pause_s == PAUSE_S and latency.pause_s == 0.0
    assert TargetSettings(model="m", device=device, prefer=LATENCY, prefill_chunk=64).pack_tokens == 64


def test_what_is_preferred_has_two_names() -> None:
    with pytest.raises(PacelineError, match="throughput or latency"):
        TargetSettings(model="m", prefer="speed")


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"kv_dtype": "int4"}, "must be one of auto, int8"), ({"kv_dtype": "int8", "device": "cuda"}, "dtype bfloat16")],
    ids=str,
)
def test_keys_and_values_in_eight_bits_go_with_some_types(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(PacelineError, match=words) as refusal:
        TargetSettings(model="m", **settings)
    assert refusal.value.field == "kv_dtype"
    assert not TargetSettings(model="m").coded
    for device, dtype in (("cuda", "bfloat16"), ("cpu", "float32"), ("cpu", "float64")):
        assert TargetSettings(model="m", device=device, dtype=dtype, kv_dtype="int8").coded


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"activations": "int4"}, "must be one of auto, int8, fp8"),
        ({"activations": "int8", "device": "cuda"}, "dtype bfloat16"),
        ({"activations": "fp8", "device": "cuda"}, "dtype bfloat16"),
    ],
    ids=str,
)
def test_rows_of_eight_bits_go_with_some_settings(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(PacelineError, match=words) as refusal:
        TargetSettings(model="m", **settings)
    assert refusal.value.field == "activations"
    for device, dtype in (("cuda", "bfloat16"), ("cpu", "float32"), ("cpu", "float64")):
        for activations in ("int8", "fp8"):
            assert TargetSettings(model="m", device=device, dtype=dtype, activations=activations).rounds
    assert not TargetSettings(model="m").rounds
