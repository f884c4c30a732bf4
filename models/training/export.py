"""Writes the pair in the published layouts, with a checksum manifest per folder."""

import hashlib
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from models.training.drafter import Drafter
from models.training.settings import Settings, Shape
from models.training.target import Target

MANIFEST = "manifest.sha256"


def export_pair(settings: Settings, target: Target, drafter: Drafter, folder: Path) -> None:
    """Write target/ and drafter/ below the folder."""
    shape = settings.shape
    ours, theirs = folder / "target", folder / "drafter"
    for part in (ours, theirs):
        part.mkdir(parents=True, exist_ok=True)
    _save_weights(target, ours)
    _save_json(ours / "config.json", target_config(shape))
    _save_json(ours / "generation_config.json", generation_config(shape))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(settings.work / "tokenizer" / name, ours / name)
    _save_weights(drafter, theirs)
    _save_json(theirs / "config.json", drafter_config(shape))
    for part in (ours, theirs):
        write_manifest(part)


def target_config(shape: Shape) -> dict[str, object]:
    """Describe the target as Hugging Face's Qwen3."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        **_common(shape),
        "num_hidden_layers": shape.num_layers,
        "tie_word_embeddings": True,
        "initializer_range": 0.02,
        "use_cache": True,
        "bos_token_id": None,
        "eos_token_id": shape.eos_token_id,
        "pad_token_id": shape.eos_token_id,
    }


def drafter_config(shape: Shape) -> dict[str, object]:
    """Describe the drafter in the published DFlash fields."""
    return {
        "architectures": ["DFlashDraftModel"],
        **_common(shape),
        "num_hidden_layers": shape.draft_layers,
        "num_target_layers": shape.num_layers,
        "block_size": shape.block_size,
        "dflash_config": {
            "mask_token_id": shape.mask_token_id,
            "target_layer_ids": list(shape.target_layer_ids),
        },
        "layer_types": ["full_attention"] * shape.draft_layers,
        "tie_word_embeddings": False,
    }


def generation_config(shape: Shape) -> dict[str, object]:
    """Name the token that ends a text; decoding is greedy unless asked otherwise."""
    return {"eos_token_id": shape.eos_token_id, "pad_token_id": shape.eos_token_id, "do_sample": False}


def write_manifest(folder: Path) -> None:
    """List every other file of the folder in the format of sha256sum."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and file.name != MANIFEST)
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


def _save_weights(module: nn.Module, folder: Path) -> None:
    tensors = {
        name: weight.detach().to("cpu", torch.bfloat16).contiguous() for name, weight in module.state_dict().items()
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _save_json(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")
