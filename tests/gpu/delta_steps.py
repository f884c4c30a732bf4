"""Texts whose rows one layer of Gated DeltaNet takes in random spans, by steps that are captured on a GPU.

Rows of a text are made once. What they must read, and the states, are those of plain decoding, a row at a time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from services.common.kernels.gated_delta import BLOCK, DeltaSpan, next_folded
from services.common.kernels.gated_delta.kernel import delta_rows
from tests.kernels.gpu.delta_layer import EPS, NAN, Layer
from tests.kernels.gpu.devices import DEVICE, INTERPRETED


class Step:
    """Spans of one width of some sequences, from buffers; captured at the first call."""

    def __init__(self, layer: Layer, batch: int, width: int, prompt: bool) -> None:
        self._layer, self._width = layer, width
        # Each begins at a multiple of 16 bytes, so that a kernel is compiled once for all batches.
        self._where_3B = torch.zeros((3, batch + batch % 2), dtype=torch.int64, device=DEVICE)[:, :batch]
        self._into_TF = torch.zeros((batch * width, layer.shape.features), dtype=layer.dtype, device=DEVICE)
        self._norm_V, self._prompt = layer.norm_V.to(DEVICE), prompt
        self._out_TF = self._into_TF.new_empty((batch * width, layer.shape.heads * layer.shape.v_dim))
        self._replay: Callable[[], object] | None = self._run if INTERPRETED else None

    def __call__(self, slots_B: Tensor, lengths_B: Tensor, valid_B: Tensor, rows_BWF: Tensor) -> Tensor:
        """Returns what rows read [B, W, Hv * Dv], until the next call; folds."""
        self._where_3B.copy_(torch.stack((slots_B, lengths_B, valid_B)))
        self._into_TF.copy_(rows_BWF.flatten(0, 1))
        if self._replay is None:
            self._replay = self._captured()
        self._replay()
        return self._out_TF.view(*rows_BWF.shape[:2], -1)

    def _captured(self) -> Callable[[], object]:
        """A first run compiles, and is undone: a slot's rows and states must be those of one run."""
        layer = self._layer
        kept = [x.clone() for x in (layer.state_SHKV, layer.ring_SRC, layer.folded_S)]
        self._run()
        for x, old in zip((layer.state_SHKV, layer.ring_SRC, layer.folded_S), kept, strict=True):
            x.copy_(old)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._run()
        return graph.replay

    def _run(self) -> None:
        layer, (slots_B, lengths_B, valid_B) = self._layer, self._where_3B.unbind()
        folded_B = layer.folded_S.index_select(0, slots_B)
        span = DeltaSpan(
            slots_B, lengths_B, folded_B, valid_B if self._prompt else None, self._width, layer.ring, layer.shape.taps
        )
        # A kernel between: those of the layer read where spans lie before they wait.
        into_TF = self._into_TF.clone()
        delta_rows(
            into_TF, layer.constants, self._norm_V, EPS, span, layer.state_SHKV, layer.ring_SRC, self._out_TF
        )  # fmt: skip
        layer.folded_S.index_copy_(0, slots_B, next_folded(span))


def bits_differ(found: Tensor, expected: Tensor) -> Tensor:
    """Which vectors [..., X] have other bits."""
    kind = torch.int32 if found.dtype == torch.float32 else torch.int16
    differ: Tensor = (found.contiguous().view(kind) != expected.contiguous().view(kind)).any(-1)
    return differ


class Texts:
    """Some texts in slots of their own, a slot for pad rows behind them, and how far each has come."""

    def __init__(self, layer: Layer, count: int, length: int) -> None:
        """The layer has `count + 1` slots."""
        self.layer, self.count, self.length, self.pad = layer, count, length, count
        self.rows_NLF = layer.rows(count * length).view(count, length, -1)
        self._steps: dict[tuple[int, int, bool], Step] = {}
        self.lengths = [0] * (count + 1)
        self.differ, self.rounds, self.states = torch.zeros(2, dtype=torch.int64, device=DEVICE), 0, 0
        self.read_NLF, self.states_NBHKV = self._plainly()

    def _plainly(self) -> tuple[Tensor, Tensor]:
        """What each row reads by plain decoding, alone in its round, and the state at each boundary."""
        shape, read = self.layer.shape, []
        states_NBHKV = torch.full(
            (self.count, self.length // BLOCK + 1, shape.heads, shape.k_dim, shape.v_dim), NAN, device=DEVICE
        )
        for text, rows_LF in enumerate(self.rows_NLF):
            for at in range(self.length):
                read.append(self._step([text], [at], [1], rows_LF[None, at : at + 1], False)[0, 0].clone())
                if at % BLOCK == 0:
                    states_NBHKV[text, at // BLOCK] = self.layer.state_SHKV[text]
        return torch.stack(read).view(self.count, self.length, -1), states_NBHKV

    def _step(self, slots: list[int], lengths: list[int], valid: list[int], rows: Tensor, prompt: bool) -> Tensor:
        key = (len(slots), rows.shape[1], prompt)
        if key not in self._steps:
            self._steps[key] = Step(self.layer, *key)
        slots_B, lengths_B, valid_B = torch.tensor([slots, lengths, valid], device=DEVICE)
        return self._steps[key](slots_B, lengths_B, valid_B, rows)

    def begin(self, cold: float | None) -> None:
        """All anew; states and rings are filled, or left as requests before have left them."""
        self.lengths = [0] * (self.count + 1)
        self.layer.folded_S.zero_()
        if cold is not None:
            self.layer.state_SHKV.fill_(cold)
            self.layer.ring_SRC.fill_(cold)

    def span(self, texts: list[int], width: int, kept: list[int], junk: float, prompt: bool) -> None:
        """Takes `kept` of `width` rows of each text; those behind them hold junk, as do pad rows."""
        starts = [self.lengths[text] for text in texts]
        rows_BWF = torch.stack([self.rows_NLF[text, at : at + width] for text, at in zip(texts, starts, strict=True)])
        slots, lengths, valid = list(texts), list(starts), list(kept)
        if len(texts) > 1:
            rows_BWF = torch.cat((rows_BWF, torch.full_like(rows_BWF[:1], NAN)))
            slots, lengths, valid = [*slots, self.pad], [*lengths, 0], [*valid, 0]
        kept_B1 = torch.tensor([*kept, 0][: len(slots)], device=DEVICE)[:, None]
        stays_BW = torch.arange(width, device=DEVICE) < kept_B1
        read_BWF = self._step(slots, lengths, valid, torch.where(stays_BW[..., None], rows_BWF, junk), prompt)
        expected_BWF = torch.stack(
            [self.read_NLF[text, at : at + width] for text, at in zip(texts, starts, strict=True)]
        )
        self.differ[0] += (bits_differ(read_BWF[: len(texts)], expected_BWF) & stays_BW[: len(texts)]).sum()
        for text, count in zip(texts, kept, strict=True):
            self.lengths[text] += count
        self._compare_states(texts)
        self.rounds += 1

    def _compare_states(self, texts: list[int]) -> None:
        """Of texts of which anything is folded: with those of plain decoding."""
        texts_B = torch.tensor(texts, device=DEVICE)
        folded_B = self.layer.folded_S.index_select(0, texts_B)
        differ_BHK = bits_differ(self.layer.state_SHKV[texts_B], self.states_NBHKV[texts_B, folded_B // BLOCK])
        self.differ[1] += (differ_BHK.flatten(1).any(1) & (folded_B > 0)).sum()
        self.states += len(texts)


def random_spans(texts: Texts, widths: tuple[int, ...], chunk: int, pick: random.Random) -> Iterator[None]:
    """Prompts in chunks and rounds of any width, in any company, until no text has rows for a chunk left."""
    last = texts.length - max(chunk, *widths)
    while live := [text for text in range(texts.count) if texts.lengths[text] <= last]:
        prompt = pick.random() < 0.15
        width = chunk if prompt else pick.choice(widths)
        batch = pick.sample(live, pick.choice([size for size in (1, 3, texts.count) if size <= len(live)]))
        kept = [pick.randrange(1, width + 1) for _ in batch]
        texts.span(batch, width, kept, pick.choice((NAN, 9.0)), prompt)
        yield
