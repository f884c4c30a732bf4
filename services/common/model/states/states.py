"""The state that sequences keep in a model, by kind of layer, and the rows of a forward that read and extend it.

Attention keeps keys and values in blocks of tokens; a recurrent layer keeps a state and its latest rows in a slot.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from services.common.device.staging import upload
from services.common.kernels.gated_delta import BLOCK, BlockPlan, DeltaSpan
from services.common.kernels.kv_codes.reference import powers_are_exact
from services.common.kernels.span_attention import Span, placed, seen_within
from services.common.kernels.span_attention.host_span import PAD_BLOCK
from services.common.model.spec import Attention, Delta, StackSpec
from services.common.model.states.recurrent import RecurrentStates
from services.common.model.states.state_sizes import Blocks, StateBytes, first_places, kv_shape
from services.common.model.states.state_snapshots import StateSnapshots


@dataclass(frozen=True)
class Part:
    """One span of B sequences with W rows each.

    `rows_B` is the slot that each sequence's state lives in. With `valid_B`, so many first rows of each are real and
    will be committed, as a prompt's. Without it all rows are real, and any may be rejected.
    """

    span: Span
    rows_B: Tensor
    valid_B: Tensor | None = None


class Rows:
    """Spans of any lengths in one forward. Products run over all rows at once, attention over one span at a time.

    `views` are the spans as layers see them: of a target those of all parts, group of attention by group, of a drafter
    its one part's by kind of layer.
    `writes` are where a target's rows go, group by group; without them all go to `slots_T`.
    `ends` are the rows that are read in the end: of each sequence of a single part, or by number; None: all.
    """

    def __init__(self, *parts: Part, views: Sequence[Span] = (), ends: range | Tensor | None = None) -> None:
        assert not isinstance(ends, range) or len(parts) == 1, "rows of one part"
        spans = [part.span for part in parts]
        self.parts, self.views, self.ends = parts, views or spans, ends
        self.writes: Sequence[Tensor] = ()
        if len(spans) == 1:  # as they are: a copy would be a launch
            self.positions_T, self.slots_T = spans[0].positions_BW.flatten(), spans[0].slots_T
        else:
            self.positions_T = torch.cat([span.positions_BW.flatten() for span in spans])
            self.slots_T = torch.cat([span.slots_T for span in spans])

    def within(self, windows: Sequence[int], places_N: Tensor | None = None) -> "Rows":
        """Return the rows of a target as its groups of attention see them, whose windows are these.

        With `places_N` blocks lie there in groups with a window.
        """
        if places_N is not None:
            return self._placed(windows, places_N)
        if not any(windows):
            views = self.views if len(windows) == 1 else [*self.views] * len(windows)
        else:
            views = [seen_within(part.span, window) for window in windows for part in self.parts]
        return self if views is self.views else Rows(*self.parts, views=views, ends=self.ends)

    def _placed(self, windows: Sequence[int], places_N: Tensor) -> "Rows":
        near = [placed(part.span, places_N) for part in self.parts]
        own = [part.span for part in self.parts]
        views = [seen_within(span, window) for window in windows for span in (near if window else own)]
        rows = Rows(*self.parts, views=views, ends=self.ends)
        near_T = torch.cat([span.slots_T for span in near]) if len(near) > 1 else near[0].slots_T
        rows.writes = [near_T if window else rows.slots_T for window in windows]
        return rows

    def seen(self, group: int) -> Sequence[Span]:
        """The spans of all parts as a target's group of attention sees them."""
        return self.views[group * len(self.parts) : (group + 1) * len(self.parts)]

    def places(self, group: int) -> Tensor:
        """Where the rows of a target go in a group of attention, flat slots."""
        return self.writes[group] if self.writes else self.slots_T

    def last(self, x_TX: Tensor) -> Tensor:
        """The rows of a flat tensor that are read in the end."""
        ends = self.ends
        if ends is None:
            return x_TX
        if isinstance(ends, Tensor):
            return x_TX.index_select(0, ends)
        width = self.parts[0].span.width
        return x_TX.view(-1, width, x_TX.shape[-1])[:, ends.start : ends.stop].flatten(0, 1)

    @property
    def first_slot(self) -> int:
        """The first place outside the pad block: rows with places before it are padding."""
        return (PAD_BLOCK + 1) * self.parts[0].span.block_size

    @property
    def last_E(self) -> Tensor | None:
        """The numbers of the rows that are read in the end; None: all."""
        if self.ends is None or isinstance(self.ends, Tensor):
            return self.ends
        return self.last(torch.arange(len(self.positions_T), device=self.positions_T.device)[:, None])[:, 0]

    def split(self, x_TX: Tensor) -> Iterator[tuple[Span, Tensor]]:
        """Each span with its rows of a flat tensor, [B, W, ...]."""
        for part, x in zip(self.parts, x_TX.split([part.span.count for part in self.parts]), strict=True):
            yield part.span, x.unflatten(0, part.span.positions_BW.shape)


LayerState = list[Tensor]
"""Paged K/V [2, N, S, Hkv, Dh], of codes with exponents [2, N, S, Hkv].

Of a recurrent layer the states [slots, Hv, Dk, Dv] and rings [slots, R, C].
"""
SpanPlan = BlockPlan | DeltaSpan
"""Where recurrent layers find and fold the rows of a span: on a CPU, and for kernels."""


class SequenceStates:
    """The states of all sequences of a target: paged K/V under the block ids of the requests' tables, others by slot.

    Rows are written at absolute positions and only lengths move, so the next rows overwrite rejected ones.
    """

    coded = False
    """Whether K/V are codes of eight bits (`kv_codes`)."""

    def __init__(
        self,
        spec: StackSpec,
        blocks: Blocks,
        dtype: torch.dtype,
        device: torch.device,
        slots: int = 1,
        width: int = 1,
        snapshots: int = 0,
    ) -> None:
        """Zeroed; `slots` includes the pad slot. `width` is the widest round's.

        Where layers with a window have places of their own, `places_N` says which block has which; at first those of
        the lowest numbers have one.

        Recurrent states have places for so many `snapshots`. `paged` are keys and values [L, 2, N, S, Hkv, Dh] of each
        group of attention, of codes with their exponents, under the same block ids.
        """
        assert not self.coded or powers_are_exact(), "this machine's powers of two are not exact"
        self.places_N = first_places(blocks.total, blocks.near, device) if blocks.near else None
        groups = {
            own: self._new_paged(kv_shape(spec, blocks.of(own), blocks.size, own), dtype, device) for own in spec.groups
        }
        self.paged = [tensor for own in groups.values() for tensor in own]
        self._recurrent = None
        if spec.delta is not None:
            self._recurrent = RecurrentStates(spec, spec.delta, dtype, device, slots, width, snapshots)
        kept = iter(self._recurrent.layers if self._recurrent else ())
        paged = {own: zip(*tensors, strict=True) for own, tensors in groups.items()}
        self.layers: list[LayerState] = [
            [*next(paged[layer.mixer])] if isinstance(layer.mixer, Attention) else next(kept) for layer in spec.layers
        ]

    def _new_paged(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> list[Tensor]:
        """Return K/V of a shape, or codes and their exponents."""
        kinds = {shape: torch.int8, shape[:-1]: torch.int8} if self.coded else {shape: dtype}
        return [torch.zeros(each, dtype=kind, device=device) for each, kind in kinds.items()]

    @staticmethod
    def sizes(spec: StackSpec, itemsize: int, width: int = 1, coded: bool = False) -> StateBytes:
        """Return the bytes that the states of a spec take; the pad slot's do not grow."""
        shapes = [(kv_shape(spec, 1, 1, own), own.window) for own in spec.groups]
        tokens = [
            (prod(shape) + prod(shape[:-1]) if coded else prod(shape) * itemsize, window) for shape, window in shapes
        ]
        token, windowed = sum(size for size, _ in tokens), sum(size for size, window in tokens if window)
        slot = 0 if spec.delta is None else RecurrentStates.slot_bytes(spec, spec.delta, itemsize, width)
        snapshot = 0 if spec.delta is None else StateSnapshots.sizes(spec.count(Delta), spec.delta, itemsize)
        return StateBytes(slot, slot, token, snapshot, windowed)

    @property
    def tensors(self) -> list[Tensor]:
        """Every tensor that a step reads or writes, for signatures and for poisoning."""
        return [*self.paged, *self.recurrent]

    @property
    def recurrent(self) -> list[Tensor]:
        """Those of recurrent layers: their states and rings, and how much each slot has folded; none without them."""
        return self._recurrent.tensors if self._recurrent else []

    @property
    def grid(self) -> int:
        """Positions of a block that recurrent states hold whole or not at all; 0 without such layers."""
        return BLOCK if self._recurrent else 0

    def forget_places(self) -> None:
        """No block has a place in layers with a window any more."""
        if self.places_N is not None:
            self.places_N.zero_()

    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        """Blocks have these places in layers with a window from now on; 0: none."""
        assert self.places_N is not None, "layers with a window have no places of their own"
        blocks, places = zip(*moves, strict=True)
        self.places_N.index_copy_(
            0, upload(blocks, torch.int64, self.places_N.device), upload(places, torch.int32, self.places_N.device)
        )

    def reset(self, slot: int) -> None:
        """A slot gets another request: recurrent states begin anew. A request finds K/V by its block table alone."""
        if self._recurrent:
            self._recurrent.reset(slot)

    def save(self, slot: int, place: int, folded: int) -> None:
        """Copy the recurrent states of a slot, which hold so many tokens, to a place for snapshots."""
        if self._recurrent:
            self._recurrent.save(slot, place, folded)

    def resume(self, slot: int, place: int, folded: int) -> None:
        """A slot gets another request, which goes on after so many tokens from the snapshot at that place."""
        if self._recurrent:
            self._recurrent.resume(slot, place, folded)

    def plans(self, rows: Rows) -> Sequence[SpanPlan]:
        """Return where recurrent layers find and fold the rows of each span; none without such layers."""
        return self._recurrent.plans(rows) if self._recurrent else ()

    def fold(self, plans: Sequence[SpanPlan]) -> None:
        """Note what the states hold now; all layers have run by these plans."""
        if self._recurrent:
            self._recurrent.fold(plans)


CODED_HEAD_STEP = 16
"""What heads are a multiple of whose keys and values in eight bits kernels take."""


class CodedStates(SequenceStates):
    """States whose keys and values are codes."""

    coded = True
