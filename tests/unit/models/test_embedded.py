"""The embedded pairs are complete, intact and of the published layouts."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from models.training.settings import MASK_TOKEN, MODELS, PRESETS, Shape
from models.training.target import Target
from services.common.model.drafters import read_any_spec

MIB = 1024 * 1024
TEXT = "def mean(values):\n    return sum(values) / len(values)\n\n\nclass Counter(dict):\n"


@dataclass(frozen=True)
class EmbeddedPair:
    """A pair in the repository, and what it was trained as."""

    folder: Path
    shape: Shape
    architecture: str

    def read(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8")

    def config(self, model: str) -> dict[str, Any]:
        config: dict[str, Any] = json.loads(self.read(f"{model}/config.json"))
        return config

    def tensors(self, model: str) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = load_file(self.folder / model / "model.safetensors")
        return tensors

    def target(self) -> Target:
        target = Target(self.shape)
        target.load_state_dict({name: tensor.float() for name, tensor in self.tensors("target").items()})
        return target.eval()


DENSE = EmbeddedPair(PRESETS["gpu"].out, PRESETS["gpu"].shape, "Qwen3ForCausalLM")
HYBRID = EmbeddedPair(PRESETS["hybrid"].out, PRESETS["hybrid"].shape, "Qwen3_5ForCausalLM")


@pytest.fixture(params=[DENSE, HYBRID], ids=lambda pair: pair.folder.name)
def pair(request: pytest.FixtureRequest) -> EmbeddedPair:
    chosen: EmbeddedPair = request.param
    return chosen


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(DENSE.folder / "target" / "tokenizer.json"))


@pytest.fixture(scope="module")
def prompts() -> list[str]:
    loaded: list[str] = json.loads(DENSE.read("heldout_prompts.json"))
    return loaded


@pytest.mark.parametrize("model", ["target", "drafter"])
def test_manifest_lists_and_verifies_every_file(pair: EmbeddedPair, model: str) -> None:
    lines = pair.read(f"{model}/manifest.sha256").splitlines()
    listed = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    found = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in (pair.folder / model).iterdir()
        if file.name != "manifest.sha256"
    }
    assert listed == found


def test_files_stay_small(pair: EmbeddedPair) -> None:
    sizes = [file.stat().st_size for file in pair.folder.rglob("*") if file.is_file()]
    assert max(sizes) < 16 * MIB
    assert sum(sizes) <= 24 * MIB


@pytest.mark.parametrize("kind", ["dflash2", "dspark", "eagle3"])
def test_drafters_of_later_kinds_are_small_and_what_their_manifests_say(kind: str) -> None:
    folder = MODELS / "embedded-kinds" / kind
    lines = (folder / "manifest.sha256").read_text("utf-8").splitlines()
    listed = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    assert listed == {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.iterdir()
        if file.name != "manifest.sha256"
    }
    assert sum(file.stat().st_size for file in folder.iterdir()) < 4 * MIB
    assert read_any_spec(folder).kind == kind


def test_target_has_the_layout_of_its_family(pair: EmbeddedPair) -> None:
    config, tensors = pair.config("target"), pair.tensors("target")
    expected = {name: weight.shape for name, weight in Target(pair.shape).state_dict().items()}
    assert {name: tensor.shape for name, tensor in tensors.items()} == expected
    assert config["architectures"] == [pair.architecture]
    assert config["tie_word_embeddings"] is True
    assert 5e6 < sum(tensor.numel() for tensor in tensors.values()) < 10e6


def test_three_layers_of_the_hybrid_are_recurrent_to_one_of_attention() -> None:
    assert HYBRID.config("target")["layer_types"] == [*["linear_attention"] * 3, "full_attention"] * 2


def test_both_pairs_have_one_tokenizer_and_one_chat_template() -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert DENSE.read(f"target/{name}") == HYBRID.read(f"target/{name}")


def test_drafter_has_the_layout_of_dflash(pair: EmbeddedPair) -> None:
    tensors = pair.tensors("drafter")
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == _dflash_shapes()
    assert all(tensor.dtype is torch.bfloat16 for tensor in tensors.values())


def test_drafter_config_names_its_target(pair: EmbeddedPair) -> None:
    config, target = pair.config("drafter"), pair.config("target")
    assert config["architectures"] == ["DFlashDraftModel"]
    assert config["block_size"] == 8
    assert config["dflash_config"] == {"mask_token_id": 1, "target_layer_ids": [1, 3, 5]}
    assert config["num_target_layers"] == target["num_hidden_layers"]
    for key in ("hidden_size", "vocab_size", "head_dim", "rope_theta", "num_key_value_heads"):
        assert config[key] == target[key]


def test_no_text_encodes_to_the_mask(tokenizer: Tokenizer, prompts: list[str]) -> None:
    mask = tokenizer.token_to_id(MASK_TOKEN)
    assert mask == DENSE.config("drafter")["dflash_config"]["mask_token_id"]
    unicode = "".join(chr(code) for code in range(0x20, 0x3000))
    for text in (MASK_TOKEN, f"a{MASK_TOKEN}b", unicode, TEXT, *prompts):
        assert mask not in tokenizer.encode(text).ids


def test_prompts_are_short_and_survive_the_tokenizer(tokenizer: Tokenizer, prompts: list[str]) -> None:
    assert len(prompts) == len(set(prompts)) == len(json.loads(DENSE.read("heldout_sources.json"))) == 40
    for prompt in prompts:
        ids = tokenizer.encode(prompt).ids
        assert 24 <= len(ids) <= 60
        assert tokenizer.decode(ids) == prompt


def test_stepping_equals_one_forward(pair: EmbeddedPair, tokenizer: Tokenizer) -> None:
    target, ids = pair.target(), torch.tensor([tokenizer.encode(TEXT).ids])
    cache = target.new_cache(1, ids.shape[1])
    with torch.no_grad():
        first, _ = target.step(ids[:, :9], 0, cache)
        second, _ = target.step(ids[:, 9:], 9, cache)
        torch.testing.assert_close(torch.cat((first, second), 1), target(ids), atol=1e-4, rtol=0)


def test_logits_equal_those_of_transformers(pair: EmbeddedPair, prompts: list[str], tokenizer: Tokenizer) -> None:
    transformers = pytest.importorskip("transformers")
    reference = transformers.AutoModelForCausalLM.from_pretrained(
        pair.folder / "target", dtype=torch.float32, local_files_only=True
    )
    ids = torch.tensor([tokenizer.encode("\n".join(prompts[:6])).ids])
    with torch.no_grad():
        torch.testing.assert_close(pair.target()(ids), reference(ids).logits, atol=1e-4, rtol=0)


def _dflash_shapes() -> dict[str, tuple[int, ...]]:
    width, inner, queries, keys = 256, 768, 256, 128
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (width, 3 * width),
        "hidden_norm.weight": (width,),
        "norm.weight": (width,),
    }
    for layer in range(2):
        parts: dict[str, tuple[int, ...]] = {
            "input_layernorm": (width,),
            "post_attention_layernorm": (width,),
            "self_attn.q_proj": (queries, width),
            "self_attn.k_proj": (keys, width),
            "self_attn.v_proj": (keys, width),
            "self_attn.o_proj": (width, queries),
            "self_attn.q_norm": (64,),
            "self_attn.k_norm": (64,),
            "mlp.gate_proj": (inner, width),
            "mlp.up_proj": (inner, width),
            "mlp.down_proj": (width, inner),
        }
        shapes |= {f"layers.{layer}.{name}.weight": size for name, size in parts.items()}
    return shapes
