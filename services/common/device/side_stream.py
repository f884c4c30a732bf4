"""Work beside the present stream: small kernels that nobody waits for at once hide behind large ones."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class SideStream:
    """A second stream that starts where the present one is and is joined later; without a GPU all runs in order.

    Tensors that the work reads must live until it is joined.
    """

    def __init__(self, device: torch.device, shared: bool) -> None:
        """All runs in order, too, unless processes share the GPU.

        Where they take turns, a graph with a second branch that waits for another process keeps the GPU for its own
        until its slice is over: 1.1 ms a round on an H200.
        """
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" and shared else None

    @contextmanager
    def start(self) -> Iterator[None]:
        """What is launched within runs behind what the present stream holds, and beside what follows there."""
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            yield

    def join(self) -> None:
        """The present stream waits for it."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)
