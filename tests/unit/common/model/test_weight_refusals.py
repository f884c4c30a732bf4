"""Configurations of packed weights that are not read: each is refused by its key, with what to take instead."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from services.common.model import ModelError
from services.common.model.families import read_target_spec
from services.common.model.files.weight_formats import refusal
from tests.support.cases import each
from tests.support.packed_checkpoints import LAYOUTS
from tests.support.tiny_checkpoints import write_tiny

CT = LAYOUTS["ct-fp8-lines"].config


def changed_ct(**changes: Any) -> dict[str, Any]:
    group = json.loads(json.dumps(CT["config_groups"]["group_0"]))
    for path, value in changes.items():
        holder, _, name = path.rpartition("__")
        (group[holder] if holder else group)[name] = value
    return dict(CT) | {"config_groups": {"group_0": group}}


REFUSED: list[tuple[Any, str, str]] = [
    ({"bits": 4}, "quantization_config.quant_method: is missing", "original in bfloat16"),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "quant_method: 'bitsandbytes'", "AWQ, GPTQ"),
    ({"quant_method": "mxfp4"}, "quant_method: 'mxfp4'", "another model"),
    ({"quant_method": "fbgemm_fp8"}, "quant_method: 'fbgemm_fp8'", "compressed-tensors"),
    ({"quant_method": 3}, "quant_method", "wrong type"),
    ({"quant_method": "fp8", "activation_scheme": "static"}, "activation_scheme: 'static'", "-FP8-dynamic"),
    ({"quant_method": "fp8", "fmt": "e5m2"}, "fmt: 'e5m2'", "e4m3"),
    ({"quant_method": "fp8", "weight_block_size": [128]}, "weight_block_size", "two sizes"),
    ({"quant_method": "fp8", "weight_block_size": [128, 0]}, "weight_block_size", "two sizes"),
    ({"quant_method": "fp8", "something": 1}, "quantization_config.something", "not a supported key"),
    ({"quant_method": "awq", "bits": 8}, "bits: 8", "GEMM"),
    ({"quant_method": "awq", "version": "gemv"}, "version: 'gemv'", "GEMM"),
    ({"quant_method": "awq", "zero_point": False}, "zero_point", "GEMM"),
    ({"quant_method": "awq", "group_size": 0}, "group_size", "-1 or a size"),
    ({"quant_method": "gptq", "bits": 5}, "bits: 5", "2, 3, 4 and 8"),
    ({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}, "checkpoint_format: 'marlin'", "gptq_v2"),
    ({"quant_method": "gptq", "bits": 4, "dynamic": {"+:.*up": {"bits": 8}}}, "dynamic", "one width"),
    ({"quant_method": "gptq", "bits": 4, "rotation": "hadamard"}, "rotation: 'hadamard'", "without rotated"),
    ({"quant_method": "modelopt", "quant_algo": "FP8"}, "quant_algo: 'fp8'", "compressed-tensors"),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": {}}, "kv_cache_scheme", "without"),
    (changed_ct(input_activations__dynamic=False), "input_activations.dynamic", "-FP8-dynamic"),
    (changed_ct(weights__type="int"), "weights.type", "float-quantized holds no int"),
    (changed_ct(weights__num_bits=4), "weights.num_bits: 4", "has 8"),
    (changed_ct(weights__strategy="token"), "weights.strategy: 'token'", "channel"),
    (changed_ct(weights__symmetric=False), "weights.symmetric", "symmetric file"),
    (changed_ct(weights__strategy="block"), "weights.block_structure", "two sizes"),
    (changed_ct(weights__strategy="group"), "weights.group_size", "a size"),
    (changed_ct(weights__more=1), "weights.more", "not a supported key"),
    (changed_ct(targets=["re:("]), "targets", "no expression"),
    (changed_ct(output_activations={"num_bits": 8}), "output_activations", "kept as they are"),
    (changed_ct(weights=None), "weights", "packs no weight"),
    (dict(CT) | {"format": "marlin-24"}, "format: 'marlin-24'", "pack-quantized"),
    (dict(CT) | {"format": "mixed-precision"}, "format", "is missing"),
    (dict(CT) | {"config_groups": {}}, "config_groups", "empty"),
    (dict(CT) | {"kv_cache_scheme": {"num_bits": 8}}, "kv_cache_scheme", "without one"),
    (dict(CT) | {"sparsity_config": {"format": "sparse-24-bitmask"}}, "sparsity_config", "quantised alone"),
    (dict(CT) | {"transform_config": {"config_groups": {"u": {}}}}, "transform_config", "without transforms"),
    (dict(CT) | {"quantization_status": "calibration"}, "quantization_status", "compressed"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "named", "remedy"), REFUSED)
def test_what_is_not_read_is_refused_by_name_with_what_to_take(
    config: dict[str, Any], named: str, remedy: str, tmp_path: Path
) -> None:
    folder = write_tiny(tmp_path).target
    values = json.loads((folder / "config.json").read_text()) | {"quantization_config": config}
    (folder / "config.json").write_text(json.dumps(values))
    told = refusal(values, folder / "config.json")
    assert named in told
    assert remedy in told
    with pytest.raises(ModelError) as caught:
        read_target_spec(folder)
    assert str(caught.value) == told


@each("layout", LAYOUTS)
def test_what_is_read_is_not_refused(layout: str) -> None:
    assert refusal({"quantization_config": dict(LAYOUTS[layout].config)}) == ""
    assert refusal({"text_config": {"quantization_config": dict(LAYOUTS[layout].config)}}) == ""


_ROUND = {"bits": 4, "group_size": 128, "sym": True, "autoround_version": "0.5.1", "data_type": "int", "act_bits": 16,
          "iters": 1000, "nsamples": 512, "super_bits": None, "amp": True, "desc_act": False}  # fmt: skip
PUBLISHED: Mapping[str, Mapping[str, Any]] = {
    "compressed-tensors of 2024": dict(CT) | {
        "quantization_status": "frozen",
        "sparsity_config": {"format": "dense", "global_sparsity": 19.1, "registry_requires_subclass": False,
                            "sparsity_structure": "unstructured"},
    },
    "AutoRound as GPTQ": _ROUND | {"quant_method": "gptq"},
    "AutoRound as AWQ": _ROUND | {"quant_method": "awq", "zero_point": True, "version": "gemm"},
    "GPTQModel": {"quant_method": "gptq", "method": "gptq", "format": "gptq", "checkpoint_format": "gptq", "bits": 4,
                  "group_size": 128, "hyb_act": False, "pack_impl": "cpu", "offload_to_disk": True, "meta": {}},
    "GPTQModel's AWQ": {"quant_method": "awq", "method": "awq", "format": "gemm", "bits": 4, "dynamic": None},
    "in capitals": {"quant_method": "FP8", "weight_block_size": [128, 128]},
}  # fmt: skip
"""What tools wrote into files that people have, and says nothing of the numbers."""


@each("name", PUBLISHED)
def test_what_published_files_say_more_is_not_refused(name: str) -> None:
    assert refusal({"quantization_config": PUBLISHED[name]}) == ""


def test_plain_weights_are_not_refused() -> None:
    assert refusal({}) == refusal({"quantization_config": None}) == refusal({"quantization_config": {}}) == ""


def test_configurations_of_any_type_are_refused_in_words() -> None:
    """Every key of every layout, with values of every type: an error in words or none, never another exception."""
    values: list[Any] = [None, True, -1, 0, 1.5, 10**400, "", "x" * 500, [], [1], ["re:("], {}, {"a": {}}]
    count = 0
    for layout in LAYOUTS.values():
        for path, _ in leaves(layout.config):
            for value in values:
                refusal({"quantization_config": replaced(layout.config, path, value)})
                count += 1
    assert count > 1000


def leaves(value: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    if not isinstance(value, dict):
        return [(path, value)]
    own = [(path, value)] if path else []
    return own + [leaf for name, inner in value.items() for leaf in leaves(inner, (*path, name))]


def replaced(config: Any, path: tuple[str, ...], value: Any) -> Any:
    return value if not path else dict(config) | {path[0]: replaced(config[path[0]], path[1:], value)}
