"""Qwen3-Next, with experts or without: as Qwen3.5, but recurrent projections are packed by head of keys."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from services.common.model.fields.fields import Fields
from services.common.model.files.checkpoint import TensorSource
from services.common.model.reading.experts import read_experts
from services.common.model.reading.hybrid import read_hybrid
from services.common.model.reading.reading import read_causal
from services.common.model.spec import Delta, ModelSpec
from services.common.model.weights.weights import ModelWeights, read_model

ARCHITECTURE = "Qwen3NextForCausalLM"


def read_spec(fields: Fields, folder: Path) -> ModelSpec:
    """Read config.json.

    Raises:
        ModelError: a value is inconsistent, or a key asks for what is not implemented.
    """
    experts = partial(read_experts, renorm=(True, False), shared=True)
    return read_causal(fields, folder, read_hybrid(fields, experts))


def read_weights(spec: ModelSpec, checkpoint: TensorSource, dtype: torch.dtype, device: torch.device) -> ModelWeights:
    """Read the tensors; those of the drafting head (`mtp.`) are not served.

    Raises:
        ModelError: a tensor is missing, foreign, mis-shaped or not finite.
    """
    delta = spec.delta
    source = checkpoint if delta is None else _Unpacked(checkpoint, delta)
    return read_model(spec, source, dtype, device, skipped=("mtp.",))


class _Unpacked:
    """Gives each projection its own name; files hold, by head of keys, [q, k, v, z] in one and [b, a] in another."""

    def __init__(self, source: TensorSource, delta: Delta) -> None:
        self.folder, self.revision = source.folder, source.revision
        self._source = source
        self._keys, group = delta.k_heads, delta.v_heads // delta.k_heads
        values = group * delta.v_dim
        self._packs = {
            "in_proj_qkvz": {"q": delta.k_dim, "k": delta.k_dim, "v": values, "z": values},
            "in_proj_ba": {"b": group, "a": group},
        }

    @property
    def names(self) -> frozenset[str]:
        return self._source.names

    def refuse_other_than(self, names: Iterable[str], skipped: tuple[str, ...] = ()) -> None:
        self._source.refuse_other_than({self._own(name)[0] for name in names}, skipped)

    def read(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        own, parts = self._own(name)
        if not parts:
            return self._source.read(name, shape, dtype)
        sizes = self._packs[own.split(".")[-2]]
        packed_FD = self._source.read(own, (self._keys * sum(sizes.values()), shape[1]), dtype)
        split = packed_FD.unflatten(0, (self._keys, -1)).split(list(sizes.values()), 1)
        by_name = dict(zip(sizes, split, strict=True))
        return torch.cat([by_name[part].flatten(0, 1) for part in parts])

    def _own(self, name: str) -> tuple[str, str]:
        """Return the name of the tensor that holds another, and which of its parts are that one."""
        for pack, sizes in self._packs.items():
            start, found, rest = name.partition(".in_proj_")
            parts = rest.removesuffix(".weight")
            if found and set(parts) <= sizes.keys():
                return f"{start}.{pack}.weight", parts
        return name, ""
