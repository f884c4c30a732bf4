"""A small random target of each family, texts that it wrote, and how a drafter learns of them."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from models.training.foreign.corpus import Conversations
from models.training.foreign.frozen import FrozenTarget
from models.training.foreign.learning import LearningOptions
from models.training.foreign.packing import Pattern
from models.training.foreign.publish import shape_for
from models.training.foreign.writing import Writing, write
from models.training.settings import Shape
from services.common.model.families import open_family
from services.common.model.weights.weights import model_shapes

VOCAB, MASK = 96, 5
CONFIGS: dict[str, dict[str, object]] = {
    "llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama"},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": False},
}
SIZES: dict[str, object] = {
    "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 5, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "hidden_act": "silu", "rms_norm_eps": 1e-5, "max_position_embeddings": 128,
    "rope_theta": 10000.0, "tie_word_embeddings": True, "torch_dtype": "float32", "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def target_folder(path: Path, kind: str, vocab: int = VOCAB) -> Path:
    """Return a folder with a model of a family."""
    path.mkdir()
    (path / "config.json").write_text(json.dumps({**SIZES, **CONFIGS[kind], "vocab_size": vocab}))
    _, spec = open_family(path)
    draw = torch.Generator().manual_seed(3)
    tensors = {
        name: torch.rand(shape, generator=draw) + 0.5 if "norm" in name else 0.3 * torch.randn(shape, generator=draw)
        for name, shape in model_shapes(spec).items()
    }
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    return path


def written(target: FrozenTarget, count: int = 16, length: int = 32) -> Conversations:
    """Return texts of one length at most, greedy ones and drawn ones in turn."""
    draw = torch.Generator().manual_seed(1)
    begun = [torch.randint(6, VOCAB, (4 + index % 5,), generator=draw).tolist() for index in range(count)]
    torch.manual_seed(2)
    temperatures = [0.0 if index % 2 else 0.8 for index in range(count)]
    ids, ends = write(target, begun, temperatures, Writing(length, 9, (2,)), seconds=60.0)
    flat = torch.tensor([temperature == 0.0 for temperature in temperatures])
    return Conversations(ids, torch.tensor([len(tokens) for tokens in begun]), ends, flat)


def shape_of(target: FrozenTarget) -> Shape:
    """Return that of a drafter of two layers and blocks of eight."""
    return shape_for(target, layers=2, block_size=8, mask_token_id=MASK)


OPTIONS = LearningOptions(
    seconds=1e9,
    steps=30,
    rows=4,
    pattern=Pattern(((8, 4), (4, 3))),
    chunk=37,
    muon_lr=0.02,
    adam_lr=3e-3,
    report_seconds=1e9,
)
