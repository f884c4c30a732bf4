"""What rows and rounds of a hybrid must cost: bytes, and its products and attention in the libraries."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from services.common.device.graph import StepGraphs
from services.common.model.gpu.delta_mixer import DeltaMixer
from services.common.model.spec import Attention
from services.common.model.states.states import SequenceStates
from tests.bench.gpu.rig import Rig
from tests.bench.gpu.steps import matrix


def captured_us(rig: Rig, run: Callable[[], None], repeats: int = 10) -> float:
    """Microseconds of a captured run."""
    graphs = StepGraphs(rig.device)
    graphs.capture("run", run, ())
    return rig.micros(lambda: graphs.replay("run"), repeats, 5)


def weight_bytes(rig: Rig) -> int:
    """Every matrix of a forward once: a tied embedding is the head, another is read by row."""
    model, size = rig.pool.model, rig.pool.model.dtype.itemsize
    tables = 0 if model.spec.tied else prod(model.embed_VD.shape)
    return size * (model.elements - tables + rig.pool.context.elements)


def round_bytes(rig: Rig, bucket: int, context: int) -> int:
    """Fewest bytes of a round: matrices, keys and values, and states; these are stored once in sixteen tokens."""
    size = SequenceStates.sizes(rig.pool.model.spec, rig.pool.model.dtype.itemsize)
    return weight_bytes(rig) + bucket * (context * size.per_token + delta_bytes(rig))


def delta_bytes(rig: Rig) -> int:
    """Bytes of a sequence's states."""
    states_LSHKV = rig.pool.states.tensors[1]
    return states_LSHKV[:, 0].numel() * states_LSHKV.element_size()


def delta_moved(rig: Rig, width: int, pending: int) -> int:
    """Bytes that recurrent layers read and write for a sequence's round in which no block ends.

    States; rows as projected, those that wait and the convolution's from the ring, new ones with what gates them; new
    rows to the ring; and what they read.
    """
    rings_LSRC, spec = rig.pool.states.tensors[2], rig.pool.model.spec
    assert spec.delta is not None, "a hybrid's spec"
    layers, kept, inner = len(rings_LSRC), rings_LSRC.shape[-1], spec.delta.v_heads * spec.delta.v_dim
    numbers = (spec.delta.taps - 1 + pending) * kept + width * 2 * (kept + inner)
    return delta_bytes(rig) + layers * numbers * rings_LSRC.element_size()


def products_us(rig: Rig, rows: int) -> float:
    """Microseconds of the products of all layers by the library, captured; the head is not part of a chunk."""
    weights = layer_weights(rig)
    inputs = {weight.shape[1]: matrix(rig, (rows, weight.shape[1])) for weight in weights}

    def run() -> None:
        for weight in weights:
            F.linear(inputs[weight.shape[1]], weight)

    return captured_us(rig, run, 3)


def layer_weights(rig: Rig) -> list[Tensor]:
    """Every matrix of every layer, in order."""
    found: list[Tensor] = []
    for layer in rig.pool.model._stack._layers:  # type: ignore[attr-defined]
        own = layer.mixer.weights
        into = [own.into_FD] if isinstance(layer.mixer, DeltaMixer) else [own.qkv_FD, own.gate_FD]
        found += [*into, layer.o_DF, layer.ffn.weights.gate_up_FD, layer.ffn.weights.down_DF]
    return found


def attention_us(rig: Rig, prompts: int, start: int, rows: int) -> float:
    """Microseconds of all layers of attention: rows see the context before them whole, and themselves causally.

    Two calls, since torch's causal mask is that of equal lengths; merging their results is not counted.
    """
    spec = rig.pool.model.spec
    heads, kv_heads, size = spec.attention.heads, spec.attention.kv_heads, spec.attention.head_dim

    def random(count: int, tokens: int) -> Tensor:
        return matrix(rig, (prompts * count * tokens, size)).view(prompts, count, tokens, size)

    query, own = random(heads, rows), (random(kv_heads, rows), random(kv_heads, rows))
    before = (random(kv_heads, start), random(kv_heads, start)) if start else None

    def run() -> None:
        F.scaled_dot_product_attention(query, *own, is_causal=True, enable_gqa=True)
        if before is not None:
            F.scaled_dot_product_attention(query, *before, enable_gqa=True)

    with torch.no_grad():
        return captured_us(rig, run, 3) * spec.count(Attention)
