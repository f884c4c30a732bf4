"""Writes the pair in the published layouts, with a checksum manifest per folder."""

import hashlib
import json
from collections.abc import Collection, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from models.training.drafter import Drafter
from models.training.settings import Delta, Settings, Shape
from models.training.target import Target
from models.training.tokenizer import copy_tokenizer

MANIFEST = "manifest.sha256"


def export_pair(settings: Settings, target: Target, drafter: Drafter, folder: Path) -> None:
    """Write target/ and drafter/ below the folder."""
    ours, theirs = folder / "target", folder / "drafter"
    ours.mkdir(parents=True, exist_ok=True)
    copy_tokenizer(settings.work / "tokenizer", ours)
    write_target(settings.shape, target, ours)
    theirs.mkdir(parents=True, exist_ok=True)
    _save_weights(drafter, theirs)
    _save_json(theirs / "config.json", drafter_config(settings.shape))
    write_manifest(theirs)


def write_target(shape: Shape, target: Target, folder: Path) -> None:
    """Write configuration, weights and the manifest of all that the folder holds."""
    _save_weights(target, folder)
    _save_json(folder / "config.json", target_config(shape))
    _save_json(folder / "generation_config.json", generation_config(shape))
    write_manifest(folder)


def target_config(shape: Shape) -> dict[str, object]:
    """Describe the target as Hugging Face's Qwen3, or as Qwen3.5's text model."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        **_common(shape),
        **(_hybrid(shape, shape.delta) if shape.delta else {}),
        "num_hidden_layers": shape.num_layers,
        "tie_word_embeddings": True,
        "initializer_range": 0.02,
        "use_cache": True,
        "bos_token_id": None,
        "eos_token_id": shape.eos_token_id,
        "pad_token_id": shape.eos_token_id,
    }


def drafter_config(shape: Shape, short_sizes: Sequence[int] = ()) -> dict[str, object]:
    """Describe the drafter in the published DFlash fields, and name shorter blocks that it has seen."""
    short = {"short_block_sizes": sorted(short_sizes)} if short_sizes else {}
    return {
        "architectures": ["DFlashDraftModel"],
        **_common(shape),
        "num_hidden_layers": shape.draft_layers,
        "num_target_layers": shape.num_layers,
        "block_size": shape.block_size,
        "dflash_config": {
            "mask_token_id": shape.mask_token_id,
            "target_layer_ids": list(shape.target_layer_ids),
            **short,
        },
        "layer_types": ["full_attention"] * shape.draft_layers,
        "tie_word_embeddings": False,
    }


def chain_config(shape: Shape) -> dict[str, object]:
    """Describe an EAGLE-3 drafter in DeepSpec's fields."""
    return {
        "architectures": ["Qwen3Eagle3Model"],
        **_common(shape),
        "num_hidden_layers": 1,
        "num_target_layers": shape.num_layers,
        "target_layer_ids": list(shape.target_layer_ids),
        "tie_word_embeddings": False,
    }


def generation_config(shape: Shape) -> dict[str, object]:
    """Name the token that ends a text; decoding is greedy unless asked otherwise."""
    return {"eos_token_id": shape.eos_token_id, "pad_token_id": shape.eos_token_id, "do_sample": False}


def write_manifest(folder: Path, unlisted: Collection[str] = ()) -> None:
    """List every other file of the folder in the format of sha256sum, but those `unlisted`, which change."""
    own = {MANIFEST, *unlisted}
    files = sorted(file for file in folder.iterdir() if file.is_file() and file.name not in own)
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (folder / MANIFEST).write_text("".join(lines))


def _common(shape: Shape) -> dict[str, object]:
    return {
        "model_type": "qwen3",
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": shape.rms_norm_eps,
        "max_position_embeddings": shape.max_positions,
        "rope_theta": shape.rope_theta,
        "rope_scaling": None,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "use_sliding_window": False,
        "sliding_window": None,
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
    }


def _hybrid(shape: Shape, delta: Delta) -> dict[str, object]:
    """Return the keys of Qwen3.5 that are not Qwen3's, or have another value."""
    kinds = ("linear_attention" if shape.recurrent(layer) else "full_attention" for layer in range(shape.num_layers))
    return {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "layer_types": list(kinds),
        "full_attention_interval": shape.interval,
        "attn_output_gate": True,
        "linear_num_key_heads": delta.k_heads,
        "linear_num_value_heads": delta.v_heads,
        "linear_key_head_dim": delta.k_dim,
        "linear_value_head_dim": delta.v_dim,
        "linear_conv_kernel_dim": delta.taps,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": shape.rope_theta,
            "partial_rotary_factor": shape.turning / shape.head_dim,
            "mrope_interleaved": True,
            "mrope_section": [3, 3, 2],
        },
    }


def _save_weights(module: nn.Module, folder: Path) -> None:
    tensors = {
        name: weight.detach().to("cpu", torch.bfloat16).contiguous() for name, weight in module.state_dict().items()
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _save_json(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")
