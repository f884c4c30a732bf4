"""Tiny random pairs whose drafter makes chains."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from services.common.model.drafters import checkpoint_shapes, read_any_spec
from services.common.model.drafters.spec import DRAFT_TO_TARGET
from services.common.model.files.checkpoint import SINGLE_FILE
from services.common.model.files.manifest import write_manifest
from services.common.model.weights.weights import Shapes
from tests.support.tiny_checkpoints import TinyPair, TinyShape, write_tiny


def write_mtp(
    folder: Path,
    seed: int = 0,
    shape: TinyShape | None = None,
    *,
    family: str = "qwen3_5_text",
    changes: Mapping[str, Any] | None = None,
) -> TinyPair:
    """A random hybrid with a drafting head in its own file, which is the drafter's folder too."""
    pair = write_tiny(folder, seed, shape, std=0.25, family=family, changes=changes)
    path = pair.target / SINGLE_FILE
    kept = {name: tensor for name, tensor in load_file(path).items() if not name.startswith("mtp.")}
    head = random_tensors(checkpoint_shapes(read_any_spec(pair.target)), seed + 100, centre=0.0)
    save_file(kept | head, path, metadata={"format": "pt"})
    write_manifest(pair.target)
    return TinyPair(pair.target, pair.target)


def write_eagle3(
    folder: Path, seed: int = 0, shape: TinyShape | None = None, *, dialect: str = "eagle", **changes: Any
) -> TinyPair:
    """A random dense target and an EAGLE-3 drafter for a third of its tokens, as one of three makers writes it."""
    shape = replace(shape or TinyShape(), layers=6)
    pair = write_tiny(folder, seed, shape, std=0.25)
    keys: dict[str, Any] = {**_eagle3(shape), **_DIALECTS[dialect], **changes}
    config = {name: value for name, value in keys.items() if value is not None}
    if dialect == "speculators":
        outer = {name: config.pop(name) for name in _OUTER if name in config}
        config = outer | {"speculators_model_type": "eagle3", "transformer_layer_config": config}
    (pair.drafter / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    shapes = checkpoint_shapes(read_any_spec(pair.drafter))
    tensors = random_tensors({name: one for name, one in shapes.items() if name != DRAFT_TO_TARGET}, seed + 100, 1.0)
    if DRAFT_TO_TARGET in shapes:
        count = shapes[DRAFT_TO_TARGET][0]
        tensors[DRAFT_TO_TARGET] = torch.arange(2, 2 + 3 * count, 3) % shape.vocab - torch.arange(count)
        tensors["t2d"] = torch.zeros(shape.vocab, dtype=torch.bool)
    start = "midlayer." if dialect == "eagle" else "layers.0."
    named = {start + name.removeprefix("layers.0.") if name.startswith("layers.0.") else name: tensor
             for name, tensor in tensors.items()}  # fmt: skip
    save_file(named, pair.drafter / SINGLE_FILE, metadata={"format": "pt"})
    write_manifest(pair.drafter)
    return pair


def _eagle3(shape: TinyShape) -> dict[str, Any]:
    return {
        "model_type": "llama", "vocab_size": shape.vocab, "hidden_size": shape.hidden, "intermediate_size": shape.inner,
        "num_hidden_layers": 1, "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim, "max_position_embeddings": shape.context, "rms_norm_eps": 1e-6,
        "rope_theta": 20000.0, "hidden_act": "silu", "draft_vocab_size": shape.vocab // 3,
    }  # fmt: skip


_DIALECTS: Mapping[str, Mapping[str, Any]] = {
    "eagle": {
        "architectures": ["LlamaForCausalLMEagle3"],
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 5], "use_aux_hidden_state": True},
    },
    "deepspec": {
        "architectures": ["Qwen3Eagle3Model"], "model_type": "qwen3", "target_layer_ids": [0, 1, 2, 3, 4],
        "num_target_layers": 6, "draft_vocab_size": None,
    },
    "speculators": {
        "architectures": ["Eagle3Speculator"], "model_type": "qwen3", "eagle_aux_hidden_state_layer_ids": [2, 3, 4],
        "norm_before_residual": True, "norm_before_fc": True, "speculators_version": "0.9.0",
        "speculators_config": {"algorithm": "eagle3"}, "attention_bias": True,
    },
}  # fmt: skip
_OUTER = (
    "architectures", "draft_vocab_size", "eagle_aux_hidden_state_layer_ids", "norm_before_residual", "norm_before_fc",
    "norm_output", "fc_norm", "speculators_version", "speculators_config", "target_hidden_size", "use_aux_hidden_state",
)  # fmt: skip


def random_tensors(shapes: Shapes, seed: int, centre: float) -> dict[str, torch.Tensor]:
    """Matrices around 0, norms around `centre`."""
    generator = torch.Generator().manual_seed(seed)
    drawn = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    return {
        name: noise * 0.25 if noise.ndim > 1 or name.endswith(".bias") else centre + 0.2 * noise
        for name, noise in drawn.items()
    }


CHAINS: Mapping[str, Callable[..., TinyPair]] = {
    "mtp": write_mtp,
    "eagle3": write_eagle3,
    "eagle3-deepspec": partial(write_eagle3, dialect="deepspec"),
    "eagle3-speculators": partial(write_eagle3, dialect="speculators"),
}
"""Writers of a pair: by kind, and by layout of its file where there are several."""
