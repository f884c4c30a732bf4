"""Weights that are kept as codes mean the numbers of the widened ones, and what kernels do not take is widened."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from services.common.kernels.linear.packed_weight import PackedWeight
from services.common.model import ModelError, Target
from services.common.model import load_target as load_any
from services.common.model.files.checkpoint import resolve_folder
from services.common.model.files.formats import open_checkpoint
from services.common.model.files.kept import CodedWeights
from services.common.model.files.widened import WidenedCheckpoint
from services.common.model.spec import Attention
from services.common.model.weights.weights import LayerWeights, read_layer
from tests.support.host_blocks import host_blocks
from tests.support.packed_checkpoints import LAYOUTS, awq, ct_packed, gptq, pack_checkpoint
from tests.support.tiny_checkpoints import TinyShape, write_tiny

SHAPE = TinyShape(hidden=128, inner=256, layers=1, heads=4, kv_heads=2, head_dim=32, taps=(0,))

FOUR_SHAPE = replace(SHAPE, hidden=256, heads=8, kv_heads=4)
FOUR_BITS = {
    "awq": awq(128),
    "awq-bf16": awq(128, torch.bfloat16),
    "gptq": gptq(4, 128, sym=True),
    "gptq-asymmetric": gptq(4, 128, sym=False),
    "ct": ct_packed(4, 128),
    "ct-asymmetric": ct_packed(4, 128, symmetric=False),
}
"""Groups of 128 inputs, as files of large models have."""


def made(folder: Path, layout: str, family: str = "qwen3", shape: TinyShape = SHAPE) -> Path:
    target = write_tiny(folder, 3, shape, family=family, std=0.1, dtype=torch.bfloat16).target
    pack_checkpoint(target, folder / "twin", LAYOUTS[layout])
    return target


@pytest.fixture(autouse=True)
def codes_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the choice of a GPU out."""
    monkeypatch.setattr("services.common.model.target_reading.takes_codes", lambda device, dtype: True)


def load_target(folder: Path, **options: Any) -> Target:
    return load_any(folder, codes={8: 0, 4: 0}, **options)


def weights_of(target: Any) -> dict[str, Tensor]:
    return dict(host_blocks(target).named_parameters()) | dict(host_blocks(target).named_buffers())


@pytest.mark.parametrize("layout", ["fp8-bf16", "fp8-tensor", "ct-fp8-lines", "ct-fp8-lines-f32", "ct-fp8-tensor"])
def test_a_model_of_codes_has_the_numbers_of_the_widened_one(layout: str, tmp_path: Path) -> None:
    folder = made(tmp_path, layout)
    coded, wide = load_target(folder), load_target(tmp_path / "twin")
    ours, theirs = weights_of(coded), weights_of(wide)
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    numbers, tables = 512 * 128 // 2 + 128 * 128 + 3 * 256 * 128, 320 * 128
    assert coded.widened_bytes == 4 * 512 * 128 and wide.widened_bytes == 0
    assert wide.weight_bytes - coded.weight_bytes > 2.9 * numbers and coded.weight_bytes > 4 * tables + numbers
    assert coded.products == wide.products


@pytest.mark.parametrize("layout", ["fp8-bf16", "ct-fp8-lines"])
def test_a_model_may_keep_the_numbers_of_its_codes(layout: str, tmp_path: Path) -> None:
    """Many rows are multiplied by them, so that nothing is widened while a round runs."""
    folder = made(tmp_path, layout, shape=replace(SHAPE, kv_heads=4))
    coded, beside = load_target(folder), load_target(folder, beside=True)
    assert beside.widened_bytes == 0
    numbers = sum(outputs * depth * SHAPE.layers for outputs, depth in coded.products if outputs != SHAPE.vocab)
    assert beside.weight_bytes - coded.weight_bytes == 4 * numbers
    checkpoint = open_checkpoint(resolve_folder(folder))
    assert isinstance(checkpoint, WidenedCheckpoint)
    for one in products(read(coded.spec.layers[0], CodedWeights(checkpoint, beside=True))):
        assert isinstance(one, PackedWeight) and one.numbers_FD is not None
        assert torch.equal(one.numbers_FD, one.widened()), "heads that were put in another order too"


def test_codes_and_numbers_that_would_take_too_much_are_widened_instead(tmp_path: Path) -> None:
    """What is left would not hold keys and values."""
    folder = made(tmp_path, "fp8-bf16")
    whole = load_any(folder, codes={8: 0}, beside=True).weight_bytes
    assert load_any(folder, codes={8: 2 * whole}, beside=True).widened_bytes == 0
    assert load_any(folder, codes={8: 2 * whole}, beside=True).weight_bytes == whole
    wide = load_any(folder, codes={8: whole // 2}, beside=True)
    assert wide.weight_bytes == 4 * wide.elements < whole
    alone = load_any(folder, codes={8: whole // 2})
    assert alone.weight_bytes < wide.weight_bytes, "codes alone take less"


@pytest.mark.parametrize("name", FOUR_BITS)
def test_a_model_of_four_bits_has_the_numbers_of_the_widened_one(name: str, tmp_path: Path) -> None:
    folder = write_tiny(tmp_path, 3, FOUR_SHAPE, family="qwen3", std=0.1, dtype=torch.bfloat16).target
    pack_checkpoint(folder, tmp_path / "twin", FOUR_BITS[name])
    coded, wide = load_target(folder), load_target(tmp_path / "twin")
    ours, theirs = weights_of(coded), weights_of(wide)
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    numbers = 512 * 256 + 256 * 256 + 3 * 256 * 256
    assert wide.weight_bytes - coded.weight_bytes == 4 * numbers - numbers // 2 - 4 * numbers // 128
    assert load_any(folder, codes={8: 0}).widened_bytes == 0, "codes of eight bits alone were asked for"


def test_queries_keys_and_values_are_joined_as_codes_and_turned_with_their_scales(tmp_path: Path) -> None:
    """Heads turn in part: lines of a head are put in another order, and each takes its scale with it."""
    folder = made(tmp_path, "ct-fp8-lines", shape=replace(SHAPE, kv_heads=4))
    checkpoint = open_checkpoint(resolve_folder(folder))
    assert isinstance(checkpoint, WidenedCheckpoint)
    spec = load_target(folder).spec
    mixer = spec.layers[0].mixer
    assert isinstance(mixer, Attention)
    record = replace(spec.layers[0], mixer=replace(mixer, rope=replace(mixer.rope, turning=16)))
    coded, wide = (read(record, source) for source in (CodedWeights(checkpoint), checkpoint))
    for one, other in zip(products(coded), products(wide), strict=True):
        assert isinstance(one, PackedWeight) and torch.equal(one.widened(), other)


def read(record: Any, source: Any) -> LayerWeights:
    return read_layer(source, record, 128, "model.layers.0", torch.bfloat16, torch.device("cpu"))


def products(layer: LayerWeights) -> list[Any]:
    return [layer.attention.qkv_FD, layer.attention.o_DF, layer.dense.gate_up_FD, layer.dense.down_DF]


@pytest.mark.parametrize(
    ("layout", "family"),
    [
        ("fp8-f16", "qwen3"),
        ("ct-int4", "qwen3"),
        ("gptq-ordered", "qwen3"),
        ("fp8-bf16", "qwen3_5"),
        ("ct-mxfp8", "qwen3"),
    ],
)
def test_what_kernels_do_not_take_is_widened(layout: str, family: str, tmp_path: Path) -> None:
    shape = replace(SHAPE, layers=4, taps=(0, 1)) if family == "qwen3_5" else SHAPE
    target = load_target(made(tmp_path, layout, family, shape))
    assert target.widened_bytes == 0
    assert target.weight_bytes == 4 * target.elements


def test_a_code_that_is_no_number_is_refused_as_in_a_widened_weight(tmp_path: Path) -> None:
    folder = made(tmp_path, "fp8-bf16")
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.mlp.up_proj.weight"].view(torch.uint8)[3, 5] = 0xFF
    save_file(tensors, folder / "model.safetensors")
    (folder / "manifest.sha256").unlink(missing_ok=True)
    with pytest.raises(ModelError, match=r"up_proj holds NaN"):
        load_target(folder)


def test_random_weights_are_rounded_to_codes_where_the_configuration_says_so(tmp_path: Path) -> None:
    folder = made(tmp_path, "fp8-bf16")
    coded = load_target(folder, random_weights=True)
    assert coded.widened_bytes == 4 * 512 * 128
    assert load_target(tmp_path / "twin", random_weights=True).widened_bytes == 0
