"""The drafter's folder: configuration, weights in shards, and the manifest; and the way back."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file
from torch import Tensor

from models.training.export import write_manifest
from models.training.foreign import eight_bits
from models.training.foreign.frozen import FrozenTarget
from models.training.foreign.trained import Trained
from models.training.settings import Shape
from services.common.model.drafters.reading import default_layer_ids
from services.common.model.spec import Beside

SHARD = "14MB"
CARD, NUMBERS = "card.md", "card.json"
"""Pages of a run, which are written when nothing else changes too."""


def shape_for(target: FrozenTarget, layers: int, block_size: int, mask_token_id: int, taps: int | None = None) -> Shape:
    """Return the shape of a drafter whose layers are as wide as the target's.

    It reads the target's residual stream after `taps` layers, evenly spread, as many as it has itself by default.
    """
    spec, attention, ffn = target.spec, target.spec.attention, target.spec.layers[0].ffn
    return Shape(
        vocab_size=spec.vocab_size,
        hidden_size=spec.hidden_size,
        intermediate_size=ffn.dense.inner if isinstance(ffn, Beside) else ffn.inner,
        num_layers=len(spec.layers),
        num_heads=attention.heads,
        num_kv_heads=attention.kv_heads,
        head_dim=attention.head_dim,
        max_positions=spec.max_positions,
        rope_theta=attention.rope.theta,
        draft_layers=layers,
        block_size=block_size,
        # A shallow target has fewer than are asked for.
        target_layer_ids=tuple(dict.fromkeys(default_layer_ids(len(spec.layers), taps or layers))),
        eos_token_id=spec.eos_token_ids[0] if spec.eos_token_ids else 0,
        mask_token_id=mask_token_id,
    )


def publish(drafter: Trained, folder: Path, sizes: Sequence[int] = (), packed: bool = False) -> None:
    """Write a drafter that takes features as the target gives them; `sizes` are of blocks that it has seen.

    With `packed` the products of its layers are in eight bits, which halves the file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("model*.safetensors*"):
        old.unlink()
    tensors = {name: weight.to("cpu", torch.bfloat16).contiguous() for name, weight in drafter.published().items()}
    save_torch_state_dict(eight_bits.pack(tensors) if packed else tensors, folder, max_shard_size=SHARD)
    config = drafter.config(sizes) | ({"quantization_config": eight_bits.CONFIG} if packed else {})
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    write_manifest(folder, (CARD, NUMBERS))


def published(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of a drafter's folder, in float32.

    Raises:
        ValueError: there are none.
    """
    tensors = {name: weight for file in folder.glob("*.safetensors") for name, weight in load_file(file).items()}
    if not tensors:
        raise ValueError(f"{folder}: there are no safetensors")
    return {name: weight.float() for name, weight in eight_bits.unpack(tensors).items()}
