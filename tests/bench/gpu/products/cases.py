"""The products that are ranked: every weight of a target and of a drafter that many rows are multiplied by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from services.common.kernels.argmax_token.columns import columns_at_once
from services.common.kernels.linear.allowed import Product
from tests.support.tiny_checkpoints import TinyShape

ROWS = (128, 512, 2048, 256, 1024, 4096, 8192)
MORE_ROWS = (1536, 3072, 3840, 2560, 3584, 96, 192, 384, 768, 144, 288, 576, 1152)
"""Rows between those: of packs of prompts, of rounds that are six or twelve wide, and of 24, 48 and 96 requests."""
HEAD_ROWS = (128, 256, 512, 1024, 2048, 96, 192, 384, 768, 1536, 144, 288, 576, 1152)
"""Rows of rounds; of a pack the head sees last tokens alone."""
DRAFTS = (8, 32, 16, 64, 128)
"""Sequences of a draft whose head is ranked."""


@dataclass(frozen=True)
class Case:
    """A weight [outputs, depth] by a number of rows."""

    name: str
    outputs: int
    depth: int
    rows: int

    @property
    def product(self) -> Product:
        """Its key in the table."""
        return self.outputs, self.depth, self.rows

    @property
    def least_us(self) -> float:
        """About the time that no GPU of today beats, by bytes and by arithmetic."""
        elements = self.outputs * self.depth + self.rows * (self.outputs + self.depth)
        return max(2 * elements / 4.5e6, 2 * self.outputs * self.depth * self.rows / 800e6)


def cases(shape: TinyShape) -> Iterator[Case]:
    """Yield what matters most first: layers, head, draft context, the draft's head, then the same of rows between."""
    yield from _of_target(shape, ROWS)
    for sequences in DRAFTS:
        count = sequences * (shape.block_size - 1)
        yield Case("draft_head", columns_at_once(count, shape.vocab), shape.hidden, count)
    yield from _of_target(shape, MORE_ROWS)


def _of_target(shape: TinyShape, rows: Sequence[int]) -> Iterator[Case]:
    yield from (Case(name, *weight, count) for count in rows for name, weight in layer_weights(shape).items())
    yield from (Case("head", shape.vocab, shape.hidden, count) for count in HEAD_ROWS if count in rows)
    yield from (Case(name, *weight, count) for count in rows for name, weight in context_weights(shape).items())


def layer_weights(shape: TinyShape) -> dict[str, tuple[int, int]]:
    """Outputs and depth of the weights of a layer; a drafter's layers are like the target's."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return {
        "qkv": (queries + 2 * keys, shape.hidden),
        "o": (shape.hidden, queries),
        "gate_up": (2 * shape.inner, shape.hidden),
        "down": (shape.hidden, shape.inner),
    }


def context_weights(shape: TinyShape) -> dict[str, tuple[int, int]]:
    """Those of the drafter's half in the target: features to one stream, and that to keys and values."""
    keys = shape.kv_heads * shape.head_dim
    return {
        "draft_fc": (shape.hidden, len(shape.taps) * shape.hidden),
        "draft_kv": (2 * shape.draft_layers * keys, shape.hidden),
    }
