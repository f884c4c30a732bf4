"""Tiny random checkpoints in the published layouts, for tests and for trying things without weights."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from services.common.model.drafters import checkpoint_shapes, read_drafter_spec
from services.common.model.families import read_target_spec
from services.common.model.files.checkpoint import SINGLE_FILE
from services.common.model.files.manifest import write_manifest
from services.common.model.weights.weights import Shapes, model_shapes

EOS_ID = 0
MASK_ID = 1
ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen3_5": "Qwen3_5ForConditionalGeneration",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
    "qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration",
    "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
    "gemma3": "Gemma3ForConditionalGeneration",
    "gemma3_text": "Gemma3ForCausalLM",
    "gemma4": "Gemma4ForConditionalGeneration",
    "gemma4_text": "Gemma4ForCausalLM",
    "laguna": "LagunaForCausalLM",
}
"""By `model_type`."""
HYBRIDS = ("qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_next")
_ZERO_CENTRED = (*HYBRIDS, "gemma3", "gemma3_text")
_BESIDE_QWEN: Shapes = {"model.visual.blocks.0.norm1.weight": (6,), "mtp.fc.weight": (8, 16)}
_NESTED: Mapping[str, tuple[str, Shapes]] = {
    "qwen3_5": ("model.language_model.", _BESIDE_QWEN),
    "qwen3_5_moe": ("model.language_model.", _BESIDE_QWEN),
    "gemma3": ("language_model.model.", {"vision_tower.vision_model.post_layernorm.bias": (6,)}),
    "gemma4": ("model.language_model.", {"model.embed_vision.embedding_projection.weight": (8, 6)}),
}
"""Those whose file holds images beside the text: how names of the text's tensors begin there, and other tensors."""
EXPERTS: Mapping[str, Any] = {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 32}
"""What a configuration with experts has more; `qwen3_next` has none unless it is changed by `SHARED`."""
SHARED: Mapping[str, Any] = {**EXPERTS, "shared_expert_intermediate_size": 64}
BESIDE: Mapping[str, Any] = {
    "enable_moe_block": True,
    "num_experts": 6,
    "top_k_experts": 3,
    "moe_intermediate_size": 24,
    "attention_k_eq_v": True,
    "num_global_key_value_heads": 1,
}
"""What a `gemma4` with experts and keys that serve as values has more."""
_GELU = {"hidden_activation": "gelu_pytorch_tanh", "hidden_act": None}
_GEMMA_3 = {**_GELU, "query_pre_attn_scalar": 12, "rope_theta": 1e6}
_GEMMA_4 = {
    **_GELU,
    "hidden_size_per_layer_input": 0,
    "global_head_dim": 24,
    "final_logit_softcapping": 8.0,
    "rope_theta": None,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
    },
}
_LAGUNA = {
    **EXPERTS,
    "shared_expert_intermediate_size": 40,
    "gating": True,
    "moe_routed_scaling_factor": 2.5,
    "rope_theta": None,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0},
        "full_attention": {
            "rope_type": "yarn",
            "rope_theta": 500000.0,
            "partial_rotary_factor": 0.5,
            "factor": 32.0,
            "original_max_position_embeddings": 64,
            "beta_fast": 64.0,
            "beta_slow": 1.0,
        },
    },
}
SLIDING: Mapping[str, Mapping[str, Any]] = {
    "gemma3": _GEMMA_3,
    "gemma3_text": _GEMMA_3,
    "gemma4": _GEMMA_4,
    "gemma4_text": _GEMMA_4,
    "laguna": _LAGUNA,
}
"""Families with sliding windows, and what their configurations say beside the sizes, the window and the layers."""
_HYBRID = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4, "partial_rotary_factor": 0.25,
}  # fmt: skip
_PARTIAL_ROPE = {
    "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25, "mrope_interleaved": True,
    "mrope_section": [1, 1, 0],
}  # fmt: skip
DRAFTERS: Mapping[str, Mapping[str, Any]] = {
    "dflash": {},
    "dspark": {
        "architectures": ["Qwen3DSparkModel"], "dflash_config": None, "mask_token_id": MASK_ID,
        "target_layer_ids": [0, 1, 2], "markov_rank": 12, "markov_head_type": "vanilla", "num_anchors": 64,
        "enable_confidence_head": True, "confidence_head_with_markov": True,
    },
    "dflash2": {
        "architectures": ["DFlash2DraftModel"],
        "dflash_config": {
            "mask_token_id": MASK_ID, "target_layer_ids": [0, 1, 2], "conv_kernel_size": 2, "conv_group_size": 8,
            "selector_rank": 12, "selector_top_k": 6,
        },
    },
    "dflash_gated": {
        "architectures": ["DFlashLagunaForCausalLM"], "gating": "per-head", "layer_types": ["sliding_attention"] * 2,
        "sliding_window": 12, "sliding_windows": [12, 12], "eagle_aux_hidden_state_layer_ids": [1, 2, 3],
        "dflash_config": {"mask_token_id": MASK_ID, "target_layer_ids": [0, 1, 2], "causal": True},
    },
}  # fmt: skip
"""What each kind's config.json changes in that of a tiny drafter; None takes a key away."""
_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)


@dataclass(frozen=True)
class TinyShape:
    """Sizes of a made-up pair; both models share them."""

    vocab: int = 320
    hidden: int = 32
    inner: int = 64
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    context: int = 2048
    window: int = 24
    tied: bool = True
    draft_layers: int = 2
    block_size: int = 8
    taps: tuple[int, ...] = (0, 1, 2)

    @property
    def layer_types(self) -> tuple[str, ...]:
        """Of a hybrid: three recurrent layers to one of attention."""
        return tuple("linear_attention" if (index + 1) % 4 else "full_attention" for index in range(self.layers))

    @property
    def windowed_types(self) -> tuple[str, ...]:
        """Of a model with windows: two layers that slide to one that does not, which the last one is."""
        last = self.layers - 1
        return tuple("sliding_attention" if (last - index) % 3 else "full_attention" for index in range(self.layers))


@dataclass(frozen=True)
class TinyPair:
    """Folders of the two checkpoints."""

    target: Path
    drafter: Path


def write_configs(
    folder: Path,
    shape: TinyShape,
    family: str = "qwen3",
    changes: Mapping[str, Any] | None = None,
    drafter: Mapping[str, Any] | None = None,
) -> TinyPair:
    """Write the two configurations only: enough for a pair with random weights."""
    pair = TinyPair(folder / "target", folder / "drafter")
    target = _target_config(shape, family) | dict(changes or {})
    for path, config in ((pair.target, target), (pair.drafter, _drafter_config(shape) | dict(drafter or {}))):
        path.mkdir(parents=True, exist_ok=True)
        kept = {name: value for name, value in config.items() if value is not None}
        (path / "config.json").write_text(json.dumps(kept, indent=1), encoding="utf-8")
    return pair


def write_tiny(
    folder: Path,
    seed: int = 0,
    shape: TinyShape | None = None,
    *,
    std: float = 0.3,
    dtype: torch.dtype = torch.float32,
    family: str = "qwen3",
    changes: Mapping[str, Any] | None = None,
    drafter: Mapping[str, Any] | None = None,
) -> TinyPair:
    """Write a random target with its tokenizer, a drafter that fits it, and their manifests.

    `family` is the target's `model_type`, `changes` are keys of its config.json, `drafter` of the drafter's. `std`
    scales the random matrices: large enough that greedy text is not one repeated token.
    """
    shape = shape or TinyShape()
    pair = write_configs(folder, shape, family, changes, drafter)
    generator = torch.Generator().manual_seed(seed)
    write_tokenizer(pair.target, shape.vocab)
    shapes = file_shapes(model_shapes(read_target_spec(pair.target)), family)
    _write_tensors(pair.target, shapes, generator, std, dtype, centre=0.0 if family in _ZERO_CENTRED else 1.0)
    _write_tensors(pair.drafter, checkpoint_shapes(read_drafter_spec(pair.drafter)), generator, std, dtype)
    return pair


def write_tokenizer(folder: Path, vocab: int) -> None:
    """Write a byte-level tokenizer: two special tokens, 256 bytes, and pairs of letters up to `vocab` entries."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    plain = [letter for letter in letters if letter.isascii() and letter.isalpha()]
    entries = {token: index for index, token in enumerate(["<|endoftext|>", "<|mask|>", *letters])}
    pairs = [(left, right) for left in plain for right in plain][: max(0, vocab - len(entries))]
    for left, right in pairs:
        entries[left + right] = len(entries)
    tokenizer = Tokenizer(models.BPE(vocab=entries, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True), AddedToken("<|mask|>", special=True)])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|endoftext|>",
        "chat_template": _CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")


def file_shapes(shapes: Shapes, family: str) -> Shapes:
    """Return the tensors of a family's file, by those of the common layout; with those of parts that are not served."""
    if family in _NESTED:
        prefix, others = _NESTED[family]
        return {name.replace("model.", prefix, 1): shape for name, shape in shapes.items()} | others
    if family != "qwen3_next":
        return shapes
    packs = {
        "in_proj_qkv": "in_proj_qkvz",
        "in_proj_z": "in_proj_qkvz",
        "in_proj_a": "in_proj_ba",
        "in_proj_b": "in_proj_ba",
    }
    packed: Shapes = {}
    for name, shape in shapes.items():
        pack = next((name.replace(part, pack) for part, pack in packs.items() if f".{part}." in name), name)
        packed[pack] = (packed.get(pack, (0,))[0] + shape[0], *shape[1:])
    return packed


def _write_tensors(
    folder: Path, shapes: Shapes, generator: torch.Generator, std: float, dtype: torch.dtype, centre: float = 1.0
) -> None:
    """Random matrices and biases around 0, norms around `centre`; the manifest last."""
    tensors = {}
    for name, size in shapes.items():
        noise = torch.randn(size, generator=generator)
        if name.endswith(".A_log"):
            value = noise - 2.0  # states that last for some ten tokens
        elif len(size) > 1 or name.endswith((".bias", "dt_bias")):
            value = noise * std
        else:
            value = (1.0 if name.endswith("linear_attn.norm.weight") else centre) + 0.2 * noise
        tensors[name] = value.to(dtype)
    save_file(tensors, folder / SINGLE_FILE, metadata={"format": "pt"})
    write_manifest(folder)


def _backbone(shape: TinyShape, layers: int) -> dict[str, Any]:
    return {
        "model_type": "qwen3",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inner,
        "num_hidden_layers": layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": shape.context,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
    }


def _target_config(shape: TinyShape, family: str) -> dict[str, Any]:
    outer = {"model_type": family, "architectures": [ARCHITECTURES[family]], "tie_word_embeddings": shape.tied}
    inner = _backbone(shape, shape.layers) | {"eos_token_id": EOS_ID}
    if "_moe" in family:
        inner |= SHARED if family in HYBRIDS else {**EXPERTS, "norm_topk_prob": True}
    if family in SLIDING:
        inner |= {**SLIDING[family], "sliding_window": shape.window, "layer_types": list(shape.windowed_types)}
        if family == "laguna":
            heads = [shape.heads if kind == "full_attention" else 2 * shape.heads for kind in shape.windowed_types]
            inner |= {"num_attention_heads_per_layer": heads}
        inner = {name: value for name, value in inner.items() if value is not None}
        nested = {"text_config": inner | {"model_type": f"{family}_text"}}
        return outer | nested if family in _NESTED else inner | outer
    if family not in HYBRIDS:
        return inner | outer
    inner |= _HYBRID | {"layer_types": list(shape.layer_types)}
    if family == "qwen3_next":
        return inner | outer | {"num_experts": 0}
    del inner["rope_theta"]
    inner |= {"model_type": family.removesuffix("_text") + "_text", "rope_parameters": _PARTIAL_ROPE}
    return outer | {"text_config": inner} if family in _NESTED else inner | outer


def _drafter_config(shape: TinyShape) -> dict[str, Any]:
    return _backbone(shape, shape.draft_layers) | {
        "architectures": ["DFlashDraftModel"],
        "num_target_layers": shape.layers,
        "block_size": shape.block_size,
        "dflash_config": {"mask_token_id": MASK_ID, "target_layer_ids": list(shape.taps)},
    }
