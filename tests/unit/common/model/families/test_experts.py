"""Families with experts: configurations are read or refused by name, and logits are those of transformers."""

import json
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from services.common.model import ModelError, Target, load_target
from services.common.model.families import read_target_spec
from services.common.model.files.manifest import write_manifest
from services.common.model.spec import Delta, Dense, Experts
from services.common.model.weights.weights import elements, model_shapes
from tests.support.host_blocks import host_blocks
from tests.support.packed_checkpoints import LAYOUTS, pack_checkpoint
from tests.support.tiny_checkpoints import EXPERTS, SHARED, TinyShape, write_tiny
from tests.unit.common.model.families.parity import deviation
from tests.unit.common.model.families.test_qwen3_5 import TEXT, layer_types, published, read

MOE: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 151643,
    "decoder_sparse_step": 1, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048,
    "initializer_range": 0.02, "intermediate_size": 6144, "max_position_embeddings": 40960, "max_window_layers": 48,
    "mlp_only_layers": [], "model_type": "qwen3_moe", "moe_intermediate_size": 768, "norm_topk_prob": True,
    "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
    "num_key_value_heads": 4, "output_router_logits": False, "rms_norm_eps": 1e-06, "rope_scaling": None,
    "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "sliding_window": None, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": True, "use_sliding_window": False,
    "vocab_size": 151936,
}  # fmt: skip
CODER = MOE | {
    "qkv_bias": False, "use_qk_norm": True, "shared_expert_intermediate_size": 0, "max_position_embeddings": 262144,
    "intermediate_size": 5472, "rope_theta": 10000000,
}  # fmt: skip
NEXT = {name: value for name, value in TEXT.items() if not name.startswith(("mtp", "rope", "mamba", "attn_output"))} | {
    "architectures": ["Qwen3NextForCausalLM"], "eos_token_id": 151645, "decoder_sparse_step": 1, "hidden_size": 2048,
    "intermediate_size": 5120, "linear_num_value_heads": 32, "model_type": "qwen3_next", "moe_intermediate_size": 512,
    "norm_topk_prob": True, "num_attention_heads": 16, "num_experts": 512, "num_experts_per_tok": 10,
    "num_hidden_layers": 48, "num_key_value_heads": 2, "output_router_logits": False, "partial_rotary_factor": 0.25,
    "rope_scaling": None, "rope_theta": 10000000, "router_aux_loss_coef": 0.001,
    "shared_expert_intermediate_size": 512, "tie_word_embeddings": False, "vocab_size": 151936,
}  # fmt: skip
FAMILIES = {
    "qwen3_moe": {"norm_topk_prob": False},
    "qwen3_next": dict(SHARED),
    "qwen3_5_moe_text": {},
}


def published_moe(layers: int = 40, width: int = 2048, experts: int = 256) -> dict[str, Any]:
    """The layout of Qwen3.5-35B-A3B and its larger relatives."""
    config = published("4B") | {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe"}
    text = config["text_config"] | {
        "hidden_size": width, "layer_types": layer_types(layers), "model_type": "qwen3_5_moe_text",
        "moe_intermediate_size": 512, "num_experts": experts, "num_experts_per_tok": 8, "num_hidden_layers": layers,
        "num_key_value_heads": 2, "output_router_logits": False, "router_aux_loss_coef": 0.001,
        "shared_expert_intermediate_size": 512,
    }  # fmt: skip
    del text["intermediate_size"]
    return config | {"text_config": text, "tie_word_embeddings": False}


@pytest.mark.parametrize(("config", "positions"), [(MOE, 40960), (CODER, 262144)], ids=["30B-A3B", "Coder"])
def test_qwen3_with_experts_is_read(config: dict[str, Any], positions: int, tmp_path: Path) -> None:
    spec = read(tmp_path, config)
    assert {layer.ffn for layer in spec.layers} == {Experts(count=128, top_k=8, inner=768)}
    assert (spec.max_positions, elements(model_shapes(spec))) == (positions, 30_532_122_624)


def test_qwen3_next_is_read(tmp_path: Path) -> None:
    spec = read(tmp_path, NEXT)
    assert {layer.ffn for layer in spec.layers} == {Experts(count=512, top_k=10, inner=512, shared=512)}
    assert (spec.count(Delta), elements(model_shapes(spec))) == (36, 79_674_391_296)


@pytest.mark.parametrize(
    ("layers", "width", "experts", "numbers"), [(40, 2048, 256, 34_660_610_688), (48, 3072, 256, None)]
)
def test_qwen3_5_with_experts_is_read(
    layers: int, width: int, experts: int, numbers: int | None, tmp_path: Path
) -> None:
    spec = read(tmp_path, published_moe(layers, width, experts))
    assert {layer.ffn for layer in spec.layers} == {Experts(count=experts, top_k=8, inner=512, shared=512)}
    assert numbers in (None, elements(model_shapes(spec)))
    text = published_moe(layers, width, experts)["text_config"] | {"architectures": ["Qwen3_5MoeForCausalLM"]}
    assert read(tmp_path, text) == spec


def test_layers_without_experts_are_dense(tmp_path: Path) -> None:
    spec = read(tmp_path, MOE | {"decoder_sparse_step": 2, "mlp_only_layers": [3, 4]})
    experts = {index for index, layer in enumerate(spec.layers) if isinstance(layer.ffn, Experts)}
    assert experts == set(range(1, 48, 2)) - {3}
    assert spec.layers[0].ffn == Dense(6144)
    assert {layer.ffn for layer in read(tmp_path, NEXT | {"num_experts": 0}).layers} == {Dense(5120)}


def test_the_number_of_experts_has_two_names(tmp_path: Path) -> None:
    renamed = {("num_local_experts" if name == "num_experts" else name): value for name, value in MOE.items()}
    assert read(tmp_path, renamed) == read(tmp_path, MOE | {"num_local_experts": 128}) == read(tmp_path, MOE)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"num_experts": None}, "num_experts: is missing"),
        ({"num_experts": -1}, "num_experts: must be in"),
        ({"num_experts": 1 << 20}, "num_experts: must be in"),
        ({"num_local_experts": 64}, "num_experts: must be in"),
        ({"num_experts_per_tok": 129}, "num_experts_per_tok: must be at most"),
        ({"num_experts_per_tok": 0}, "num_experts_per_tok: must be in"),
        ({"moe_intermediate_size": 0}, "moe_intermediate_size: must be in"),
        ({"norm_topk_prob": "yes"}, "norm_topk_prob: has the wrong type"),
        ({"mlp_only_layers": [48]}, "mlp_only_layers: must be layers below 48"),
        ({"mlp_only_layers": ["0"]}, "mlp_only_layers: must be layers below 48"),
        ({"decoder_sparse_step": 0}, "decoder_sparse_step: must be in"),
        ({"shared_expert_intermediate_size": 512}, "shared_expert_intermediate_size: this architecture has no shared"),
        ({"use_qk_norm": False}, "use_qk_norm: False is not supported"),
        ({"qkv_bias": True}, "qkv_bias: True is not supported"),
        ({"scoring_func": "sigmoid"}, "scoring_func: is not a supported key"),
        ({"n_shared_experts": 1}, "n_shared_experts: is not a supported key"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_not_implemented_is_refused(change: dict[str, Any], named: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=rf"config\.json: {named}"):
        read(tmp_path, MOE | change)


def test_other_weights_of_experts_are_refused(tmp_path: Path) -> None:
    config = published_moe()
    config["text_config"]["norm_topk_prob"] = False
    with pytest.raises(ModelError, match="norm_topk_prob: False is not supported: this architecture has True alone"):
        read(tmp_path, config)


def test_float64_is_refused_on_a_gpu_before_weights_are_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MOE))
    with pytest.raises(ModelError, match="experts in float64 run on a CPU only: take float32 or bfloat16"):
        load_target(tmp_path, torch.float64, device="cuda", random_weights=True)


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    """In float32, far within 1e-3 of their scale; some layers are dense where the family may have such."""
    changes = FAMILIES[family] | ({} if family == "qwen3_5_moe_text" else {"mlp_only_layers": [2]})
    folder = write_tiny(tmp_path, 1, TinyShape(tied=False), std=0.25, family=family, changes=changes).target
    assert deviation(folder, 70) <= 1e-4


def test_all_experts_may_be_taken_and_weights_add_up_to_one(tmp_path: Path) -> None:
    changes = {**EXPERTS, "num_experts_per_tok": EXPERTS["num_experts"], "norm_topk_prob": True}
    assert deviation(write_tiny(tmp_path, 4, std=0.25, family="qwen3_moe", changes=changes).target, 30) <= 1e-4


def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    """Change the tensors of a checkpoint."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file({name: value.contiguous() for name, value in tensors.items()}, folder / "model.safetensors")
    write_manifest(folder)


def stack_experts(tensors: dict[str, torch.Tensor]) -> None:
    """The layout of newer files: one tensor of all experts for each product."""
    for prefix in {name.partition(".experts.")[0] for name in tensors if ".experts." in name}:
        count = sum(name.startswith(f"{prefix}.experts.") for name in tensors) // 3

        def taken(kind: str, prefix: str = prefix, count: int = count) -> torch.Tensor:
            return torch.stack([tensors.pop(f"{prefix}.experts.{index}.{kind}_proj.weight") for index in range(count)])

        tensors[f"{prefix}.experts.gate_up_proj"] = torch.cat((taken("gate"), taken("up")), 1)
        tensors[f"{prefix}.experts.down_proj"] = taken("down")


@pytest.mark.parametrize("family", ["qwen3_moe", "qwen3_5_moe"])
def test_both_layouts_of_files_are_the_same_model(family: str, tmp_path: Path) -> None:
    folder = write_tiny(tmp_path, 1, family=family).target
    apart = load_target(folder)
    rewrite(folder, stack_experts)
    assert_same(load_target(folder), apart)


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize(("shared", "behind"), [(32, True), (24, False)])
def test_what_all_rows_take_lies_behind_experts_of_its_size(
    shared: int, behind: bool, stacked: bool, tmp_path: Path
) -> None:
    """In one memory with them, in either layout of files; tensors are those of the file."""
    changes = {**EXPERTS, "moe_intermediate_size": 32, "shared_expert_intermediate_size": shared}
    folder = write_tiny(tmp_path, 1, family="qwen3_5_moe_text", changes=changes).target
    tensors = load_file(folder / "model.safetensors")
    if stacked:
        rewrite(folder, stack_experts)
    found = [own for own in load_target(folder).mixtures if own.shared is not None]
    assert [own.followed for own in found] == [behind] * len(found)
    assert len(found) > 1
    prefix = next(name.partition(".shared_expert.")[0] for name in tensors if ".layers.0.mlp.shared_expert." in name)
    halves = [tensors[f"{prefix}.shared_expert.{kind}_proj.weight"].float() for kind in ("gate", "up")]
    products = [weight.float() for weight in found[0].shared.products]  # type: ignore[union-attr]
    assert torch.equal(products[0], torch.cat(halves))
    assert torch.equal(products[1], tensors[f"{prefix}.shared_expert.down_proj.weight"].float())


@pytest.mark.parametrize("layout", ["fp8-bf16", "awq", "ct-int4", "ct-nvfp4"])
def test_packed_experts_are_those_of_the_twin(layout: str, tmp_path: Path) -> None:
    """One by one, as published; the router stays plain."""
    folder, twin = write_tiny(tmp_path, 1, family="qwen3_moe").target, tmp_path / "twin"
    packed = pack_checkpoint(folder, twin, LAYOUTS[layout])
    assert sum(".mlp.experts." in name for name in packed) == 4 * 6 * 3
    assert_same(load_target(folder), load_target(twin))


def assert_same(one: Target, other: Target) -> None:
    """All weights of feed-forward parts are equal."""
    assert (one.elements, one.products) == (other.elements, other.products)
    for mine, theirs in zip(host_blocks(one).layers, host_blocks(other).layers, strict=True):
        for name in ("router.router_FD", "gate_up_EFD", "down_EDF"):
            parts = [attrgetter(name)(getattr(layer.ffn, "experts", layer.ffn)) for layer in (mine, theirs)]
            assert torch.equal(*parts)


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("model.layers.1.mlp.experts.4.up_proj.weight", None, "model.layers.1.mlp.experts.4.up_proj.weight is missing"),
        ("model.layers.1.mlp.experts.6.up_proj.weight", torch.zeros(32, 32), "is not part of this architecture"),
        ("model.layers.2.mlp.experts.0.down_proj.weight", torch.zeros(32, 31), "has shape"),
        ("model.layers.2.mlp.gate.weight", torch.full((6, 32), float("nan")), "holds NaN"),
        ("model.layers.0.mlp.experts.gate_up_proj", torch.zeros(6, 64, 32), "down_proj is missing"),
    ],
)
def test_damaged_tensors_are_refused_by_name(name: str, value: torch.Tensor | None, named: str, tmp_path: Path) -> None:
    folder = write_tiny(tmp_path, 1, family="qwen3_moe").target

    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensors.pop(name, None)
        if value is not None:
            tensors[name] = value

    rewrite(folder, change)
    with pytest.raises(ModelError, match=named):
        load_target(folder)


def test_random_weights_have_the_shapes_of_the_file(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path, 1, family="qwen3_5_moe").target
    drawn, stored = load_target(folder, random_weights=True), load_target(folder)
    assert (drawn.elements, drawn.products) == (stored.elements, stored.products)
    assert read_target_spec(folder) == drawn.spec
