"""EAGLE-3 (arXiv:2503.01840): one layer whose attention reads a token's embedding and a state side by side.

The target's states are a product of the streams after some of its blocks. The head is the drafter's own, often of a
part of the vocabulary.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

from services.common.model.drafters.chain_cell import ChainParts, norm_of, product_of
from services.common.model.drafters.eagle3.reading import (
    ALIAS,
    DEEPSPEC,
    EAGLE,
    REFUSED,
    Eagle3Spec,
    read_spec,
    translated,
)
from services.common.model.drafters.spec import EMBED, FC, HEAD, NORM, ChainSpec
from services.common.model.files.checkpoint import IntegerSource
from services.common.model.weights.weights import Shapes, layer_shapes, read_layer

__all__ = [
    "ARCHITECTURES",
    "REFUSED",
    "TABLES",
    "entry_shapes",
    "own",
    "read_parts",
    "read_spec",
    "shapes",
    "translated",
]

ARCHITECTURES = (EAGLE, ALIAS, DEEPSPEC)
TABLES: tuple[str, ...] = (EMBED, HEAD)
_LAYER, _OTHER = "layers.0.", "midlayer."
"""How names of the layer's tensors begin, here and in EAGLE's own files."""
_HIDDEN, _INPUT = f"{_LAYER}hidden_norm.weight", f"{_LAYER}input_layernorm.weight"
_BEFORE = "input_norm.weight"


class FusedFeatures(nn.Module):
    """A product of the streams of some blocks, of their norm where the file has one."""

    def __init__(self, fc_DF: Tensor, norm_F: Tensor | None, eps: float) -> None:
        super().__init__()
        self.fc, self.norm = product_of(fc_DF), nn.Identity() if norm_F is None else norm_of(norm_F, eps)

    def forward(self, features_TF: Tensor) -> Tensor:
        """Return states [T, D]."""
        states_TD: Tensor = self.fc(self.norm(features_TF))
        return states_TD


class PairedEntry(nn.Module):
    """Both norms side by side enter attention; the state, or its norm, is the residual stream."""

    normed: Final[bool]

    def __init__(self, spec: Eagle3Spec, input_D: Tensor, hidden_D: Tensor) -> None:
        super().__init__()
        self.of_input, self.of_hidden = norm_of(input_D, spec.norm_eps), norm_of(hidden_D, spec.norm_eps)
        self.normed = spec.norm_before_residual

    def forward(self, embedded_TD: Tensor, before_TD: Tensor) -> tuple[Tensor, Tensor]:
        """Return what enters attention [T, 2 D], and the stream."""
        hidden_TD: Tensor = self.of_hidden(before_TD)
        entered_TX = torch.cat((self.of_input(embedded_TD), hidden_TD), -1)
        return entered_TX, hidden_TD if self.normed else before_TD


@dataclass
class _OneName:
    """A file whose layer may be called `midlayer` is read as if it were `layers.0`."""

    source: IntegerSource

    def __post_init__(self) -> None:
        self.folder: Path = self.source.folder
        self.revision: str = self.source.revision
        self._other = any(name.startswith(_OTHER) for name in self.source.names)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(_LAYER + name.removeprefix(_OTHER) if name.startswith(_OTHER) else name
                         for name in self.source.names)  # fmt: skip

    def refuse_other_than(self, names: Iterable[str], skipped: tuple[str, ...] = ()) -> None:
        self.source.refuse_other_than(map(self._own, names), skipped)

    def read(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return self.source.read(self._own(name), shape, dtype)

    def read_integers(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return self.source.read_integers(self._own(name), shape)

    def _own(self, name: str) -> str:
        return _OTHER + name.removeprefix(_LAYER) if self._other and name.startswith(_LAYER) else name


def entry_shapes(spec: ChainSpec) -> Shapes:
    """Return the tensors in front of attention."""
    assert isinstance(spec, Eagle3Spec), "the spec of this kind"
    width, fused = spec.hidden_size, spec.features * spec.hidden_size
    own: Shapes = {FC: (width, fused), _HIDDEN: (width,), _INPUT: (width,)}
    return own | {_BEFORE: (fused,)} if spec.norm_before_fc else own


def shapes(spec: ChainSpec) -> Shapes:
    """Return all tensors but tables."""
    width = spec.hidden_size
    layer = layer_shapes(spec.layers[0], width, _LAYER.rstrip("."), inputs=2 * width)
    return entry_shapes(spec) | layer | {NORM: (width,)}


def own(checkpoint: IntegerSource) -> IntegerSource:
    """Return the tensors, with one name for the layer."""
    return _OneName(checkpoint)


def read_parts(spec: ChainSpec, checkpoint: IntegerSource, dtype: torch.dtype, device: torch.device) -> ChainParts:
    """Read the layer and what stands around it.

    Raises:
        ModelError: a tensor is missing, mis-shaped or not finite.
    """
    assert isinstance(spec, Eagle3Spec), "the spec of this kind"
    known, width = shapes(spec), spec.hidden_size
    layer = read_layer(checkpoint, spec.layers[0], width, _LAYER.rstrip("."), dtype, device, inputs=2 * width)

    def read(name: str) -> Tensor:
        return checkpoint.read(name, known[name], dtype).to(device)

    return ChainParts(
        fuse=FusedFeatures(read(FC), read(_BEFORE) if spec.norm_before_fc else None, spec.norm_eps),
        entry=PairedEntry(spec, layer.input_norm_D, read(_HIDDEN)),
        layer=layer,
        norm_D=read(NORM),
        recycles_normed=spec.norm_output,
    )
