"""Times of captured products on a GPU: under a load that lasts, and after a pause."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Protocol

import torch

Step = Callable[[], None]
_HEAD_START = 200_000
"""Cycles in which a single thread waits: about a tenth of a millisecond."""


class Replay(Protocol):
    """What was captured."""

    def replay(self) -> None:
        """Runs it again."""
        ...


class GpuClock:
    """Captures steps on a stream of its own, and times their replays by events."""

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream()

    def captured(self, step: Step) -> Replay:
        """Records a step that allocates nothing of its own, warm: the first launch of a kernel loads it."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            step()
            self._stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            # A pool of memory that graphs share must outlive none of them; these need none.
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                step()
            finally:
                graph.capture_end()
        return graph

    def hot(self, replay: Replay, seconds: float) -> float:
        """Microseconds of a replay under its own load: the first third of the time only sets clocks and power."""
        once = self._timed(replay, 1)
        count = math.ceil(seconds * 1e6 / once)
        return self._timed(replay, count - count // 3, count // 3) if count > 1 else once

    def cold(self, replay: Replay, pause: float) -> float:
        """Microseconds of a replay behind a pause, in which clocks and power recover."""
        time.sleep(pause)
        return self._timed(replay, 1)

    def _timed(self, replay: Replay, count: int, before: int = 0) -> float:
        """`before` replays are not timed."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(self._stream):
            # The host has enqueued what is timed before the GPU gets there.
            torch.cuda._sleep(_HEAD_START)
            for _ in range(before):
                replay.replay()
            begin.record()
            for _ in range(count):
                replay.replay()
            end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / count * 1e3
