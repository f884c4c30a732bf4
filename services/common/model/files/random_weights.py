"""Random weights in place of a checkpoint's: the shapes of a real model without its files, for measurements."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

_STD = 0.02
_DECAY, _DECAY_RATE = ".A_log", -4.0
"""What a recurrent layer's heads forget by: they keep a row for some tens of tokens."""


class RandomCheckpoint:
    """Answers as a checkpoint of the folder's `config.json` would; every tensor depends on its name alone."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        """Tensors are drawn on `device`: billions of numbers take a GPU a second and a CPU a minute."""
        self.folder = folder
        self._device = device
        digest = hashlib.sha256((folder / "config.json").read_bytes()).hexdigest()
        self.revision = f"random-{digest}"

    @property
    def names(self) -> frozenset[str]:
        """None are listed: whatever the architecture asks for exists."""
        return frozenset()

    def refuse_other_than(self, names: Iterable[str], skipped: tuple[str, ...] = ()) -> None:
        """Nothing is foreign and nothing is missing."""

    def read(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Matrices are normal with a standard deviation of 0.02, vectors 1, or decay slowly; on the device."""
        if len(shape) == 1:
            return torch.full(shape, _DECAY_RATE if name.endswith(_DECAY) else 1.0, dtype=dtype, device=self._device)
        seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big")
        generator = torch.Generator(self._device).manual_seed(seed)
        return torch.randn(shape, generator=generator, dtype=dtype, device=self._device).mul_(_STD)

    def read_integers(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Zeros: a reduced vocabulary then has the first of the target's tokens."""
        return torch.zeros(shape, dtype=torch.int64)
