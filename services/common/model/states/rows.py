"""The rows of one forward: spans of sequences, end to end."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from services.common.kernels.span_attention import Span, seen_within
from services.common.kernels.span_attention.span import PAD_BLOCK


@dataclass(frozen=True)
class Part:
    """One span of B sequences with W rows each.

    `rows_B` is the slot that each sequence's state lives in. With `valid_B`, so many first rows of each are real and
    will be committed, as a prompt's. Without it all rows are real, and any may be rejected.
    """

    span: Span
    rows_B: Tensor
    valid_B: Tensor | None = None

    @property
    def count(self) -> int:
        """How many rows it has."""
        return self.span.positions_BW.numel()


class Rows:
    """Spans of any lengths in one forward. Products run over all rows at once, attention over one span at a time.

    `views` are the spans as layers see them: of a target those of all parts, group of attention by group, of a drafter
    its one part's by kind of layer.
    `ends` are the rows that are read in the end: of each sequence of a single part, or by number; None: all.
    """

    def __init__(self, *parts: Part, views: Sequence[Span] = (), ends: range | Tensor | None = None) -> None:
        assert not isinstance(ends, range) or len(parts) == 1, "rows of one part"
        spans = [part.span for part in parts]
        self.parts, self.views, self.ends = parts, views or spans, ends
        if len(spans) == 1:  # as they are: a copy would be a launch
            self.positions_T, self.slots_T = spans[0].positions_BW.flatten(), spans[0].slots_T
        else:
            self.positions_T = torch.cat([span.positions_BW.flatten() for span in spans])
            self.slots_T = torch.cat([span.slots_T for span in spans])

    def within(self, windows: Sequence[int]) -> "Rows":
        """Return the rows of a target as its groups of attention see them, whose windows are these."""
        if not any(windows):
            views = self.views if len(windows) == 1 else [*self.views] * len(windows)
        else:
            views = [seen_within(part.span, window) for window in windows for part in self.parts]
        return self if views is self.views else Rows(*self.parts, views=views, ends=self.ends)

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
    def live_T(self) -> Tensor:
        """Which rows are no padding: those that have a place outside the pad block."""
        return self.slots_T >= (PAD_BLOCK + 1) * self.parts[0].span.block_size

    @property
    def last_E(self) -> Tensor | None:
        """The numbers of the rows that are read in the end; None: all."""
        if self.ends is None or isinstance(self.ends, Tensor):
            return self.ends
        return self.last(torch.arange(len(self.positions_T), device=self.positions_T.device)[:, None])[:, 0]

    def split(self, x_TX: Tensor) -> Iterator[tuple[Span, Tensor]]:
        """Each span with its rows of a flat tensor, [B, W, ...]."""
        for part, x in zip(self.parts, x_TX.split([part.count for part in self.parts]), strict=True):
            yield part.span, x.unflatten(0, part.span.positions_BW.shape)
