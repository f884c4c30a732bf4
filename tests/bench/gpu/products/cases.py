"""The weights of a layer, which a number of rows is multiplied by."""

from __future__ import annotations

from dataclasses import dataclass

from services.common.kernels.linear.allowed import Product
from tests.support.tiny_checkpoints import TinyShape


@dataclass(frozen=True)
class Case:
    """A weight [outputs, depth] by a number of rows."""

    name: str
    outputs: int
    depth: int
    rows: int

    @property
    def hidden(self) -> int:
        """Width of the stream: what gates or is cut into heads reads it, all else is added to it."""
        return self.depth if self.name in ("qkv", "gate_up") else self.outputs

    @property
    def product(self) -> Product:
        """Outputs, depth and rows."""
        return self.outputs, self.depth, self.rows


def layer_weights(shape: TinyShape) -> dict[str, tuple[int, int]]:
    """Outputs and depth of the weights of a layer; a drafter's layers are like the target's."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return {
        "qkv": (queries + 2 * keys, shape.hidden),
        "o": (shape.hidden, queries),
        "gate_up": (2 * shape.inner, shape.hidden),
        "down": (shape.hidden, shape.inner),
    }
