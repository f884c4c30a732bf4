"""Runs small kernels, whose results are not needed at once, beside the large ones of the present stream."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class SideStream:
    """A second stream that branches off the present one and is joined later; without a GPU all work runs in order.

    Tensors that the work reads must live until the join.
    """

    def __init__(self, device: torch.device, shared: bool) -> None:
        """All work also runs in order unless processes share the GPU.

        Where processes take turns, a graph with a second branch that waits for another process keeps the GPU until its
        time slice is over: 1.1 ms a round on an H200.
        """
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" and shared else None

    @contextmanager
    def start(self) -> Iterator[None]:
        """Kernels launched within run after those already on the present stream, and beside those that follow there."""
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            yield

    def join(self) -> None:
        """Makes the present stream wait for the side stream."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)
