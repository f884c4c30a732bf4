"""Packed weights in files as people have them: a configuration apart, parts in other shards, and what is left over."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from services.common.model import ModelError, load_target
from services.common.model.files.formats import open_checkpoint
from services.common.model.files.manifest import write_manifest
from services.common.preflight.checks import Asked, configurations, places, problems, tensors
from tests.support.packed_checkpoints import LAYOUTS, pack_checkpoint
from tests.support.tiny_checkpoints import TinyShape, write_tiny

UP = "model.layers.1.mlp.up_proj"
CHECKS = (places, configurations, tensors)
Values = dict[str, Any]


def made(tmp_path: Path, layout: str) -> tuple[Path, dict[str, Tensor]]:
    """A packed checkpoint and the numbers that its weights mean."""
    folder = write_tiny(tmp_path, shape=TinyShape(layers=2, taps=(0, 1)), std=0.1).target
    return folder, pack_checkpoint(folder, tmp_path / "twin", LAYOUTS[layout])


def take_config(folder: Path) -> Values:
    """Remove `quantization_config` from config.json and return it."""
    path = folder / "config.json"
    values = json.loads(path.read_text())
    own: Values = values.pop("quantization_config")
    path.write_text(json.dumps(values))
    write_manifest(folder)
    return own


def write(folder: Path, file: str, values: Values) -> None:
    (folder / file).write_text(json.dumps(values))
    write_manifest(folder)


def told(folder: Path) -> list[str]:
    """What is said of a folder before anything is loaded."""
    return [problem.line for problem in problems(Asked(str(folder), device="cpu"), CHECKS)]


def old_awq(own: Values) -> Values:
    return {"w_bit": 4, "q_group_size": own["group_size"], "zero_point": True, "version": "GEMM"}


def modelopt(own: Values) -> Values:
    inner = {"quant_algo": "NVFP4", "kv_cache_quant_algo": None, "group_size": 16, "exclude_modules": own["ignore"]}
    return {"producer": {"name": "modelopt", "version": "0.29.0"}, "quantization": inner}


APART: list[tuple[str, str, Callable[[Values], Values]]] = [
    ("gptq-asymmetric", "quantize_config.json", lambda own: {k: v for k, v in own.items() if k != "quant_method"}),
    ("gptq-v2", "quantize_config.json", lambda own: own),
    ("awq", "quant_config.json", old_awq),
    ("modelopt-nvfp4", "hf_quant_config.json", modelopt),
]


@pytest.mark.parametrize(("layout", "file", "values"), APART)
def test_a_configuration_may_stand_apart(
    layout: str, file: str, values: Callable[[Values], Values], tmp_path: Path
) -> None:
    folder, plain = made(tmp_path, layout)
    write(folder, file, values(take_config(folder)))
    assert told(folder) == []
    checkpoint = open_checkpoint(folder)
    for name, value_FD in plain.items():
        assert torch.equal(checkpoint.read(name, tuple(value_FD.shape), torch.bfloat16), value_FD)


def test_config_json_comes_before_a_file_beside_it(tmp_path: Path) -> None:
    folder, _ = made(tmp_path, "gptq")
    write(folder, "quantize_config.json", {"bits": 8, "group_size": 7})
    load_target(folder)


def test_what_stands_apart_is_refused_by_its_own_file(tmp_path: Path) -> None:
    folder, _ = made(tmp_path, "gptq")
    write(folder, "quantize_config.json", take_config(folder) | {"bits": 5})
    (line,) = told(folder)
    assert "quantize_config.json: bits: 5 is not supported: 2, 3, 4 and 8 bits are" in line
    with pytest.raises(ModelError, match=r"quantize_config\.json: bits: 5"):
        load_target(folder)


def test_another_configuration_apart_is_another_revision(tmp_path: Path) -> None:
    folder, _ = made(tmp_path, "gptq")
    own, revisions = take_config(folder), set()
    (folder / "manifest.sha256").unlink()
    for added in ({}, {"damp_percent": 0.5}):
        (folder / "quantize_config.json").write_text(json.dumps(own | added))
        revisions.add(open_checkpoint(folder).revision)
    assert len(revisions) == 2


def test_plain_weights_beside_such_a_file_stay_plain(tmp_path: Path) -> None:
    folder, plain = made(tmp_path, "gptq")
    write(tmp_path / "twin", "quantize_config.json", take_config(folder))
    checkpoint = open_checkpoint(tmp_path / "twin")
    for name, value_FD in plain.items():
        assert torch.equal(checkpoint.read(name, tuple(value_FD.shape), torch.bfloat16), value_FD)


@pytest.mark.parametrize("layout", ["fp8-bf16", "awq", "gptq-ordered", "ct-int8-asymmetric", "ct-nvfp4"])
def test_parts_of_a_weight_may_lie_in_other_shards(layout: str, tmp_path: Path) -> None:
    folder, plain = made(tmp_path, layout)
    whole = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = {name: f"model-{index % 3 + 1:05}-of-00003.safetensors" for index, name in enumerate(sorted(whole))}
    for shard in sorted(set(names.values())):
        save_file({name: whole[name] for name, place in names.items() if place == shard}, folder / shard)
    write(folder, "model.safetensors.index.json", {"metadata": {}, "weight_map": names})
    assert told(folder) == []
    checkpoint = open_checkpoint(folder)
    for name, value_FD in plain.items():
        assert torch.equal(checkpoint.read(name, tuple(value_FD.shape), torch.bfloat16), value_FD)


@pytest.mark.parametrize("layout", ["fp8-bf16", "awq", "gptq", "ct-fp8-lines", "ct-int4", "modelopt-nvfp4"])
def test_packed_weights_of_which_nothing_is_told_say_what_is_missing(layout: str, tmp_path: Path) -> None:
    folder, _ = made(tmp_path, layout)
    take_config(folder)
    (line,) = told(folder)
    assert str(folder) in line
    assert "packed weights need quantization_config in config.json" in line or ".input_scale is not part" in line


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("self_attn.k_scale", "take a file without"), ("mlp.up_proj.input_scale", "take a file with dynamic ones")],
)
def test_scales_that_have_no_place_are_named_with_the_remedy(name: str, remedy: str, tmp_path: Path) -> None:
    folder, _ = made(tmp_path, "ct-fp8-lines")
    path = folder / "model.safetensors"
    save_file(load_file(path) | {f"model.layers.0.{name}": torch.ones(1)}, path)
    write_manifest(folder)
    (line,) = told(folder)
    assert name in line
    assert remedy in line


@pytest.mark.parametrize(
    ("layout", "change", "message"),
    [
        ("awq", {"group_size": 32}, "the configuration says AWQ, 4 bits, groups of 32"),
        ("gptq", {"bits": 8}, "the configuration says GPTQ, 8 bits, groups of 16"),
        ("awq", {"group_size": 24}, "do not divide into parts of 24; the configuration says AWQ"),
    ],
)
def test_a_configuration_that_is_not_the_files_is_told(
    layout: str, change: Values, message: str, tmp_path: Path
) -> None:
    folder, _ = made(tmp_path, layout)
    values = json.loads((folder / "config.json").read_text())
    values["quantization_config"] |= change
    write(folder, "config.json", values)
    (line,) = told(folder)
    assert str(folder) in line
    assert message in line
