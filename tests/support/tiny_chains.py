"""Tiny random pairs whose drafter makes chains."""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from services.common.model.checkpoint import SINGLE_FILE
from services.common.model.drafters import checkpoint_shapes, read_any_spec
from services.common.model.manifest import write_manifest
from services.common.model.weights import Shapes
from tests.support.tiny_checkpoints import TinyPair, TinyShape, write_tiny


def write_mtp(folder: Path, seed: int = 0, shape: TinyShape | None = None, *, family: str = "qwen3_5_text") -> TinyPair:
    """A random hybrid with a drafting head in its own file, which is the drafter's folder too."""
    pair = write_tiny(folder, seed, shape, std=0.25, family=family)
    path = pair.target / SINGLE_FILE
    kept = {name: tensor for name, tensor in load_file(path).items() if not name.startswith("mtp.")}
    head = random_tensors(checkpoint_shapes(read_any_spec(pair.target)), seed + 100, centre=0.0)
    save_file(kept | head, path, metadata={"format": "pt"})
    write_manifest(pair.target)
    return TinyPair(pair.target, pair.target)


def random_tensors(shapes: Shapes, seed: int, centre: float) -> dict[str, torch.Tensor]:
    """Matrices around 0, norms around `centre`."""
    generator = torch.Generator().manual_seed(seed)
    drawn = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    return {name: noise * 0.25 if noise.ndim > 1 else centre + 0.2 * noise for name, noise in drawn.items()}


CHAINS: Mapping[str, Callable[..., TinyPair]] = {"mtp": write_mtp}
"""Writers of a pair, by kind."""
