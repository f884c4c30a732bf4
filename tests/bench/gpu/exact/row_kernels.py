"""The kernels that treat rows alone, on the shapes and random weights of a model, through their public operators."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from services.common.kernels.accept import logprobs
from services.common.kernels.argmax_token import argmax_of_product, argmax_token
from services.common.kernels.embedding import embedding
from services.common.kernels.linear import Normed, linear, linear_added, linear_gated
from services.common.kernels.rms_norm import rms_norm
from services.common.kernels.rope import Frequencies, RotationTable
from services.common.kernels.store_context import store_context
from services.common.kernels.store_qkv import project_qkv
from services.common.kernels.swiglu import swiglu
from services.common.model import load_target
from tests.bench.gpu.exact.rows_alone import Inputs, Outputs, Subject
from tests.support.tiny_checkpoints import TinyShape, write_configs

EPS, THETA, BLOCK_SIZE, TOP = 1e-6, 1e4, 16, 5
DENSE = (*range(1, 34), 40, 47, 48, 49, 56, 63, 64)
STEPS = (65, 80, 96, 127, 128, 129, 160, 192, 255, 256, 257, 320, 384, 448, 511, 512)
MOST = 2048
COUNTS = (*DENSE, *STEPS, MOST)
FEW_COUNTS = (1, 2, 3, 5, 8, 16, 17, 32, 33, 64, 65, 128, 129, 256, 512, MOST)
"""For whole vocabularies, of which a row is large."""


@dataclass
class Numbers:
    """Random numbers on a device."""

    dtype: torch.dtype
    device: str
    seed: int

    def __post_init__(self) -> None:
        self.generator = torch.Generator(self.device).manual_seed(self.seed)

    def rows(self, *shape: int) -> Tensor:
        """As large as what flows through a model."""
        return torch.randn(shape, generator=self.generator, dtype=self.dtype, device=self.device)

    def weight(self, *shape: int) -> Tensor:
        """As large as what keeps that so."""
        return self.rows(*shape).mul_(shape[-1] ** -0.5)

    def norm(self, *shape: int) -> Tensor:
        """Around one."""
        return self.rows(*shape).mul_(0.1).add_(1.0)

    def ids(self, count: int, below: int) -> Tensor:
        """Integers."""
        return torch.randint(below, (count,), generator=self.generator, device=self.device)


def narrow_subjects(shape: TinyShape, numbers: Numbers, rows: int) -> Iterator[Subject]:
    """All but those whose rows are as wide as the vocabulary."""
    norm_D = numbers.norm(shape.hidden)
    x_TD = numbers.rows(rows, shape.hidden)
    yield Subject("rms_norm", (x_TD,), lambda given: {"out": rms_norm(given[0], norm_D, EPS)})
    gate_up_TF = numbers.rows(rows, 2 * shape.inner)
    yield Subject("swiglu", (gate_up_TF,), lambda given: {"out": swiglu(given[0])})
    table_VD, ids_T = numbers.weight(shape.vocab, shape.hidden), numbers.ids(rows, shape.vocab)
    yield Subject("embedding", (ids_T,), lambda given: {"out": embedding(given[0], table_VD)})
    features = len(shape.taps) * shape.hidden
    context = shape.draft_layers * 2 * shape.kv_heads * shape.head_dim
    for name, outputs, depth in (("fc", shape.hidden, features), ("context K/V", context, shape.hidden)):
        yield _linear(f"linear {name}", numbers.weight(outputs, depth), numbers.rows(rows, depth))
    yield _block(shape, numbers, rows)
    yield _first_projection(shape, numbers, rows)
    yield _context(shape, numbers, rows)


def wide_subjects(shape: TinyShape, numbers: Numbers, rows: int) -> Iterator[Subject]:
    """Head, best tokens and log-probabilities."""
    x_TD = numbers.rows(rows, shape.hidden)
    with tempfile.TemporaryDirectory() as folder:
        pair = write_configs(Path(folder), replace(shape, layers=1, taps=(0,), draft_layers=1))
        target = load_target(pair.target, numbers.dtype, numbers.device, random_weights=True)
    on_cpu = numbers.device == "cpu"
    room_TV = None if on_cpu else torch.empty(rows, shape.vocab, dtype=numbers.dtype, device=numbers.device)

    def head(given: Inputs) -> Outputs:
        return {"out": target.logits(given[0], None if room_TV is None else room_TV[: len(given[0])])}

    yield Subject("head", (x_TD,), head)
    weight_VD = target.lm_head_VD
    yield Subject("argmax_of_product", (x_TD,), lambda given: {"out": argmax_of_product(given[0], weight_VD)})
    logits_TV, ids_T = numbers.rows(rows, shape.vocab), numbers.ids(rows, shape.vocab)
    yield Subject("argmax_token", (logits_TV,), lambda given: {"out": argmax_token(given[0])})

    def told(given: Inputs) -> Outputs:
        chosen, ids, values = logprobs(given[0][None], given[1][None], TOP)
        return {"chosen": chosen[0], "ids": ids[0], "values": values[0]}

    yield Subject("logprobs", (logits_TV[: rows // 4], ids_T[: rows // 4]), told)


def _linear(name: str, weight_FD: Tensor, x_TD: Tensor) -> Subject:
    return Subject(name, (x_TD,), lambda given: {"out": linear(given[0], weight_FD)})


def _block(shape: TinyShape, numbers: Numbers, rows: int) -> Subject:
    """From attention's rows to the next layer's queries, keys and values: all products of a block, each fused."""
    queries = shape.heads * shape.head_dim
    o_DF, down_DI = numbers.weight(shape.hidden, queries), numbers.weight(shape.hidden, shape.inner)
    gate_up_FD, post_D, next_D = numbers.weight(2 * shape.inner, shape.hidden), *numbers.norm(2, shape.hidden)
    project = _Projection(shape, numbers)

    def compute(given: Inputs) -> Outputs:
        mixed_TF, stream_TD, positions_T = given
        normed, after_TD = linear_added(mixed_TF, o_DF, stream_TD, post_D, EPS, keep=True)
        attended_TD = after_TD.clone()
        inner_TI = linear_gated(normed, gate_up_FD, EPS)
        normed, after_TD = linear_added(inner_TI, down_DI, after_TD, next_D, EPS)
        out = {"linear_added o": attended_TD, "linear_gated": inner_TI, "linear_added down": after_TD}
        return out | project(normed, positions_T)

    given = numbers.rows(rows, queries), numbers.rows(rows, shape.hidden), numbers.ids(rows, shape.context)
    return Subject("block", given, compute)


def _first_projection(shape: TinyShape, numbers: Numbers, rows: int) -> Subject:
    """The first layer's: its norm is a launch of its own."""
    project, norm_D = _Projection(shape, numbers), numbers.norm(shape.hidden)
    given = numbers.rows(rows, shape.hidden), numbers.ids(rows, shape.context)
    return Subject("first", given, lambda given: project(Normed(rms_norm(given[0], norm_D, EPS)), given[1]))


def _context(shape: TinyShape, numbers: Numbers, rows: int) -> Subject:
    layers, size = shape.draft_layers, (shape.kv_heads, shape.head_dim)
    norm_LHD, table = numbers.norm(layers, *size), _table(shape, numbers)

    def compute(given: Inputs) -> Outputs:
        mixed_TF, positions_T = given
        kv = mixed_TF.new_zeros(layers, 2, 1 + -(-len(mixed_TF) // BLOCK_SIZE), BLOCK_SIZE, *size)
        store_context(mixed_TF, norm_LHD, table.at(positions_T), kv, _slots(mixed_TF), EPS)
        return {"out": kv.flatten(2, 3)[:, :, _slots(mixed_TF)].movedim(2, 0)}

    given = numbers.rows(rows, layers * 2 * shape.kv_heads * shape.head_dim), numbers.ids(rows, shape.context)
    return Subject("store_context", given, compute)


class _Projection:
    """project_qkv into K/V of the rows alone."""

    def __init__(self, shape: TinyShape, numbers: Numbers) -> None:
        self._size = (shape.kv_heads, shape.head_dim)
        lines = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
        self._weight_FD = numbers.weight(lines, shape.hidden)
        self._norm_HD = numbers.norm(shape.heads + shape.kv_heads, shape.head_dim)
        self._table = _table(shape, numbers)

    def __call__(self, normed: Normed, positions_T: Tensor) -> Outputs:
        """Queries, and the rows' keys and values."""
        rows_TD = normed.rows_TD
        kv = rows_TD.new_zeros(2, 1 + -(-len(rows_TD) // BLOCK_SIZE), BLOCK_SIZE, *self._size)
        rotation, slots_T = self._table.at(positions_T), _slots(rows_TD)
        q_THD = project_qkv(normed, self._weight_FD, self._norm_HD, rotation, kv, slots_T, EPS)
        return {"project_qkv q": q_THD, "project_qkv K/V": kv.flatten(1, 2)[:, slots_T].movedim(1, 0)}


def _table(shape: TinyShape, numbers: Numbers) -> RotationTable:
    return RotationTable(shape.context, Frequencies.of(shape.head_dim, THETA), torch.float32, numbers.device)


def _slots(rows_TX: Tensor) -> Tensor:
    """Behind the pad block."""
    return BLOCK_SIZE + torch.arange(len(rows_TX), device=rows_TX.device)
