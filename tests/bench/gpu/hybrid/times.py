"""Times of a hybrid's captured steps at Qwen3.5-4B's shape, each against what it must cost at least in the same run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from services.common.kernels.dispatch import on_kernel
from services.common.kernels.gated_delta import DeltaSpan, delta_rows
from services.common.kernels.prepare_span import prepare_span
from services.common.model.gpu.delta_mixer import DeltaMixer
from services.common.model.states.states import Part, Rows
from services.target.core.plan import Chunk
from services.target.device.packing import packed
from services.target.device.shapes import PackShape, WholePack
from tests.bench.gpu.hybrid.rounds import FAMILY
from tests.bench.gpu.hybrid.yardstick import (
    attention_us,
    captured_us,
    delta_bytes,
    delta_moved,
    products_us,
    round_bytes,
)
from tests.bench.gpu.rig import Rig, RigSettings
from tests.bench.gpu.shapes import DELTA_4B, QWEN3_5_4B
from tests.bench.gpu.steps import capture_equals_eager, matrix, read_bandwidth
from tests.support.tiny_checkpoints import TinyShape

Row = dict[str, Any]
ROOM = 512


@dataclass(frozen=True)
class Sizes:
    """What is timed: rounds of so many sequences at a context, prompts of one chunk, of several, and a long one."""

    rig: RigSettings
    buckets: tuple[int, ...]
    context: int
    prompt: int
    burst: tuple[int, int]
    long: int
    numbers: int = 1 << 30

    @property
    def packs(self) -> tuple[PackShape, ...]:
        """Those that the prompts need, and one for what a hit leaves."""
        return PackShape(1, 32), PackShape(1, self.prompt), WholePack(*self.burst)


FULL = Sizes(
    RigSettings(
        QWEN3_5_4B, "cuda", "bfloat16", 32, (1, 4, 8, 16), 8192 + 2048, 64 << 30, 4096, FAMILY, DELTA_4B
    ),
    (1, 32), 512, 2048, (8, 512), 8192,
)  # fmt: skip
TINY = Sizes(
    RigSettings(TinyShape(context=4096, block_size=16), "cpu", "float32", 4, (1, 4), 2304, 1 << 28, 64, FAMILY),
    (1, 4), 40, 32, (4, 16), 64, 1 << 16,
)  # fmt: skip
BARS = {(1, 1): 1.30, (1, 16): 1.40}
DELTA_BARS = {1: 140.0, 8: 180.0, 16: 200.0}
PREFILL_BAR, LONG_BAR, HIT_BAR, MANY_BAR = 1.5, 1.4, 0.05, 2.0


def time_rows(tiny: bool) -> Iterator[Row]:
    """Rows of all steps; bars are ratios, but of the recurrent layers at one sequence microseconds."""
    sizes, module = TINY if tiny else FULL, "services.target.build_device"
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch(f"{module}.buckets_of", return_value=sizes.buckets),
        mock.patch(f"{module}.packs_of", return_value=sizes.packs),
        mock.patch("services.target.device.steps.MODES", ("greedy",)),
    ):
        rig = Rig(sizes.rig, Path(folder))
        bandwidth = read_bandwidth(rig, sizes.numbers)
        yield {"step": "read", "tb_s": round(bandwidth / 1e12, 3)}
        same = capture_equals_eager(rig, 1, sizes.context)
        yield {"step": "capture equals eager", "equal": same, "wrong": not same}
        for bucket in sizes.buckets:
            yield from _rounds(rig, bucket, sizes, bandwidth)
        if on_kernel(rig.pool.model.embed_VD):
            for bucket in sizes.buckets:
                yield from _delta(rig, bucket, sizes, bandwidth)
            yield from _prompts(rig, sizes)
        yield from _hit(rig, sizes)
        graphs = rig.worker.runner.graphs()
        wrong = graphs.recaptures > 0
        yield {"step": "graphs", "captures": graphs.captures, "recaptures": graphs.recaptures, "wrong": wrong}
        rig.worker.close()


def _rounds(rig: Rig, bucket: int, sizes: Sizes, bandwidth: float) -> Iterator[Row]:
    floor = round_bytes(rig, bucket, sizes.context) / bandwidth * 1e6
    for width in rig.settings.widths:
        rig.seat(bucket, sizes.context, ROOM)
        key = rig.verify_key(bucket, width, sizes.context)
        # Contexts grow by the tokens of these rounds.
        us = rig.micros(lambda key=key: rig.steps.graphs.replay(key), 20, 5)  # type: ignore[misc]
        row = {"step": "round", "bucket": bucket, "width": width, "context": sizes.context, "us": round(us, 1)}
        yield row | {"floor_us": round(floor, 1), "ratio": round(us / floor, 3), "bar": BARS.get((bucket, width))}


def _delta(rig: Rig, bucket: int, sizes: Sizes, bandwidth: float) -> Iterator[Row]:
    """All recurrent layers' own kernels in one graph, without rows that wait for their block, and with eight."""
    floor = bucket * delta_bytes(rig) / bandwidth * 1e6
    for pending in (0, 8):
        for width in rig.settings.widths:
            rig.seat(bucket, sizes.context, ROOM)
            rig.slots.length_S[:bucket] += pending
            us = captured_us(rig, DeltaLayers(rig, bucket, width).run)
            row = {"step": "delta", "bucket": bucket, "width": width, "pending": pending, "us": round(us, 1)}
            row |= {"floor_us": round(floor, 1)}
            if bucket == 1:
                bar = DELTA_BARS.get(width)
                yield row | ({} if bar is None else {"bar_us": bar, "ratio": round(us / bar, 3), "bar": "1 of its us"})
            else:
                moved = bucket * delta_moved(rig, width, pending) / bandwidth * 1e6
                row |= {"moved_us": round(moved, 1), "moved_ratio": round(us / moved, 3)}
                yield row | {"ratio": round(us / floor, 3), "bar": MANY_BAR if width <= 8 else None}


class DeltaLayers:
    """One call of the recurrent kernels for each such layer, on random projected rows."""

    def __init__(self, rig: Rig, bucket: int, width: int) -> None:
        pool, rows_B = rig.pool, rig.steps.round.rows_B[:bucket]
        drafts_BK = rig.pool.mailbox_SK[rows_B.long(), : width - 1].long()
        slots, table_SN = pool.state.slots, pool.state.block_table_SN
        _, span = prepare_span(rows_B, slots.anchor_S, slots.length_S, table_SN, drafts_BK, pool.settings.block_size)
        (self._span,) = pool.states.plans(Rows(Part(span, rows_B)))
        layers = zip(pool.model._stack._layers, pool.states.layers, strict=True)  # type: ignore[attr-defined]
        self._layers = [(layer.mixer, state) for layer, state in layers if isinstance(layer.mixer, DeltaMixer)]
        into_FD = self._layers[0][0].weights.into_FD
        self._into_TF = matrix(rig, (bucket * width, len(into_FD))).mul_(50.0)

    def run(self) -> None:
        """Runs all of them."""
        assert isinstance(self._span, DeltaSpan)
        for mixer, (state_SHKV, ring_SRC) in self._layers:
            delta_rows(
                self._into_TF, mixer.constants, mixer.weights.norm_V, mixer.eps, self._span, state_SHKV, ring_SRC
            )


def _prompts(rig: Rig, sizes: Sizes) -> Iterator[Row]:
    count, length = sizes.burst
    for name, prompts, chunk, chunks, bar in (
        (f"prefill of {sizes.prompt}", 1, sizes.prompt, 1, PREFILL_BAR),
        (f"prefill of {count} x {length}", count, length, 1, PREFILL_BAR),
        (f"prefill of {sizes.long}", 1, sizes.prompt, sizes.long // sizes.prompt, LONG_BAR),
    ):
        rig.seat(prompts, chunk * chunks, ROOM)
        us = rig.micros(lambda prompts=prompts, chunk=chunk, chunks=chunks: _prefill(rig, prompts, chunk, chunks), 2, 5)  # type: ignore[misc]
        products = products_us(rig, prompts * chunk) * chunks
        attention = sum(attention_us(rig, prompts, start * chunk, chunk) for start in range(chunks))
        delta = _chunk_delta_us(rig, prompts, chunk) * chunks
        yield {
            "step": name, "us": round(us, 1), "products_us": round(products, 1), "attention_us": round(attention, 1),
            "delta_us": round(delta, 1), "ratio": round(us / (products + attention), 3), "bar": bar,
            "tok_s": round(prompts * chunk * chunks / us * 1e6),
        }  # fmt: skip


def _prefill(rig: Rig, prompts: int, chunk: int, chunks: int) -> None:
    for slot in range(prompts):
        rig.pool.states.reset(slot)
    ids = tuple(range(17, 17 + chunk))
    for start in range(0, chunk * chunks, chunk):
        work = [Chunk(slot, 1, start, ids, last=False) for slot in range(prompts)]
        for pack in packed(work, rig.pool.settings.packs):
            rig.steps.run_prefill(pack)


def _chunk_delta_us(rig: Rig, prompts: int, chunk: int) -> float:
    """Microseconds of the recurrent kernels of a chunk from the start of its prompts."""
    for slot in range(prompts):
        rig.pool.states.reset(slot)
    rig.slots.length_S[:prompts] = 0
    layers = DeltaLayers(rig, prompts, 1)
    assert isinstance(layers._span, DeltaSpan)
    valid_B = torch.full((prompts,), chunk, dtype=torch.int64, device=rig.device)
    layers._span = layers._span._replace(valid_B=valid_B, width=chunk)
    layers._into_TF = layers._into_TF[:1].repeat(prompts * chunk, 1)
    return captured_us(rig, layers.run, 3)


def _hit(rig: Rig, sizes: Sizes) -> Iterator[Row]:
    """A long prompt from its start, and from a snapshot one block before its end."""
    rig.seat(1, sizes.long, ROOM)
    states, grid = rig.pool.states, rig.pool.states.grid
    found = sizes.long - grid
    rest = Chunk(0, 1, found, tuple(range(17, 17 + grid)), last=True)

    def hit() -> None:
        states.resume(0, 0, found)
        (pack,) = packed([rest], rig.pool.settings.packs)
        rig.steps.run_prefill(pack)
        rig.steps.pack.set_first((0,))
        rig.steps.run_first(1, "greedy")

    states.save(0, 0, found)
    cold = rig.micros(lambda: _prefill(rig, 1, sizes.prompt, sizes.long // sizes.prompt), 1, 3)
    warm = rig.micros(hit, 5, 3)
    row = {"step": f"hit of {sizes.long}", "us": round(warm, 1), "cold_us": round(cold, 1)}
    yield row | {"ratio": round(warm / cold, 4), "bar": HIT_BAR}
