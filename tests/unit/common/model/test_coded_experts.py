"""Experts of FP8 files that are kept as codes: what they mean, what they take, and files that are odd."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from services.common.model import ModelError, Target
from services.common.model import load_target as load_any
from tests.support.packed_checkpoints import LAYOUTS, pack_checkpoint
from tests.support.tiny_checkpoints import TinyShape, write_tiny

SHAPE = TinyShape(hidden=128, inner=256, layers=2, heads=4, kv_heads=2, head_dim=32, taps=(0,))
EXPERTS: dict[str, Any] = {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 128}
SHARED = EXPERTS | {"shared_expert_intermediate_size": 128}
NUMBERS = 3 * 128 * 128
"""Of an expert."""


@pytest.fixture(autouse=True)
def codes_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the choice of a GPU out."""
    monkeypatch.setattr("services.common.model.target_reading.takes_codes", lambda device, dtype: True)


def made(folder: Path, layout: str, family: str = "qwen3_moe") -> Path:
    changes = EXPERTS if family == "qwen3_moe" else SHARED
    shape = SHAPE if family == "qwen3_moe" else replace(SHAPE, layers=4, taps=(0, 1))
    target = write_tiny(folder, 3, shape, family=family, std=0.1, dtype=torch.bfloat16, changes=changes).target
    pack_checkpoint(target, folder / "twin", LAYOUTS[layout])
    return target


def load_target(folder: Path, **options: Any) -> Target:
    return load_any(folder, **({"codes": {8: 0, 4: 0}} | options))


@pytest.mark.parametrize("family", ["qwen3_moe", "qwen3_5_moe_text"])
@pytest.mark.parametrize("layout", ["fp8-bf16", "fp8-tensor", "ct-fp8-lines"])
def test_experts_of_codes_mean_the_numbers_of_the_widened_ones(layout: str, family: str, tmp_path: Path) -> None:
    """They take a byte a number, and their scales; the expert that all rows take is no code among them."""
    folder = made(tmp_path, layout, family)
    coded, wide = load_target(folder), load_target(tmp_path / "twin")
    assert len(coded.mixtures) == len(wide.mixtures) > 1
    for own, other in zip(coded.mixtures, wide.mixtures, strict=True):
        assert own.scales is not None and other.scales is None
        assert all(map(torch.equal, own.numbers, other.numbers))
        assert (own.code_bytes, own.expert_bytes, other.code_bytes) == (3 * NUMBERS, NUMBERS, 0)
    experts = 3 * NUMBERS * len(coded.mixtures)
    mixers = SHAPE.layers * (2 * 128 * 128 + 2 * 64 * 128) if family == "qwen3_moe" else 0
    saved = 3 * (experts + mixers)
    scales = sum(own.scale_bytes for own in coded.mixtures)
    assert saved * 0.99 - scales < wide.weight_bytes - coded.weight_bytes <= saved - scales


@pytest.mark.parametrize("layout", ["fp8-f32", "ct-int8", "ct-int4", "ct-mxfp8"])
def test_experts_of_other_groups_or_codes_are_widened(layout: str, tmp_path: Path) -> None:
    folder = made(tmp_path, layout)
    for own, other in zip(load_target(folder).mixtures, load_target(tmp_path / "twin").mixtures, strict=True):
        assert own.scales is None and all(map(torch.equal, own.numbers, other.numbers))


def test_experts_stay_codes_where_their_numbers_would_take_too_much(tmp_path: Path) -> None:
    """Then mixers are codes alone, too; where there is room they are numbers alone."""
    folder = made(tmp_path, "fp8-bf16")
    roomy, tight = (load_target(folder, codes={8: most}, beside=True) for most in (0, 1))
    mixers = SHAPE.layers * (2 * 128 * 128 + 2 * 64 * 128)
    assert 3 * mixers * 0.99 < roomy.weight_bytes - tight.weight_bytes <= 3 * mixers
    assert [own.scales is None for own in (*roomy.mixtures, *tight.mixtures)] == [False] * 4
    assert roomy.widened_bytes == 0 < tight.widened_bytes and tight.weight_bytes < roomy.weight_bytes


@pytest.mark.parametrize(("layout", "resident"), [("fp8-bf16", (2, 3)), ("ct-fp8-lines", (2, 3)), ("fp8-f32", (1, 2))])
def test_a_device_holds_experts_of_no_more_bytes_than_it_may(
    layout: str, resident: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As codes it holds twice as many; those that an FP8 file has in groups which are widened count in full."""
    monkeypatch.setattr("services.common.model.target_reading.INTERPRETED", True)
    folder, number = made(tmp_path, layout), 2 * NUMBERS * SHAPE.layers
    for budget, count in zip((number, 2 * number), resident, strict=True):
        target = load_target(folder, dtype=torch.bfloat16, expert_bytes=budget)
        assert [len(own.gate_up_EFD) for own in target.mixtures] == [count] * SHAPE.layers
        assert sum(own.expert_bytes * len(own.gate_up_EFD) for own in target.mixtures) <= budget


@pytest.mark.parametrize("kind", ["plain", "no number"])
def test_an_expert_that_is_no_code_beside_others_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    folder = made(tmp_path, "fp8-bf16")
    tensors, name = load_file(folder / "model.safetensors"), "model.layers.1.mlp.experts.2.up_proj"
    if kind == "plain":
        del tensors[f"{name}.weight_scale_inv"]
        tensors[f"{name}.weight"] = torch.zeros(128, 128, dtype=torch.bfloat16)
    else:
        tensors[f"{name}.weight"].view(torch.uint8)[3, 5] = 0xFF
    save_file(tensors, folder / "model.safetensors")
    (folder / "manifest.sha256").unlink(missing_ok=True)
    with pytest.raises(ModelError, match=r"2\.up_proj.*(set fp8_products to false|holds NaN)"):
        load_target(folder)
    if kind == "plain":
        assert all(own.scales is None for own in load_target(folder, codes={}).mixtures)


def test_random_experts_are_rounded_to_codes_where_the_configuration_says_so(tmp_path: Path) -> None:
    folder = made(tmp_path, "fp8-bf16")
    assert all(own.scales is not None for own in load_target(folder, random_weights=True).mixtures)
    twin = load_target(tmp_path / "twin", random_weights=True)
    assert all(own.scales is None for own in twin.mixtures)
