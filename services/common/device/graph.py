"""Captured steps: recorded once, then replayed.

On a GPU a capture is a CUDA graph. On a CPU it is the signature of every tensor the step reads or writes; a replay
whose tensors have moved or changed shape counts as a recapture, so that invariant I4 is tested everywhere.
"""

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

Signature = list[tuple[torch.Size, tuple[int, ...], torch.dtype, int]]
_WARM_UP_CALLS = 3
_LARGE_BYTES = 128 << 20
"""Of a step: what it used before it was recorded is freed, so that it does not stand beside what its graph keeps."""


_Given = ParamSpec("_Given")
_Returned = TypeVar("_Returned")


@dataclass(frozen=True, slots=True)
class Counters:
    """Numbers of captures, replays, recaptures and reallocations since the start."""

    captures: int = 0
    replays: int = 0
    recaptures: int = 0
    reallocations: int = 0


@dataclass(frozen=True, slots=True)
class CaptureCost:
    """Seconds that captures have taken, and bytes of a GPU that they keep for what passes between their kernels.

    So many `before_s` of the seconds steps ran before they were recorded.
    """

    seconds: float = 0.0
    held_bytes: int = 0
    before_s: float = 0.0


@dataclass(slots=True)
class _Captured:
    step: Callable[[], None]
    before: Callable[[], None]
    tensors: tuple[Tensor, ...]
    signature: Signature
    graph: torch.cuda.CUDAGraph | None


class StepGraphs:
    """Captures of one service; on a GPU all share one memory pool.

    With `eager` nothing is captured: every replay runs the step.
    """

    def __init__(self, device: torch.device | str, eager: bool = False) -> None:
        self._device = torch.device(device)
        self._eager = eager
        self._captured: dict[Hashable, _Captured] = {}
        self.brief: Callable[[], AbstractContextManager[None]] | None = None
        """Where kernels of all steps were compiled before: in it a step runs once before it is recorded."""
        self._counters, self._cost, self._replays = Counters(), CaptureCost(), 0
        self._pool = torch.cuda.graph_pool_handle() if self._device.type == "cuda" else None

    @property
    def counters(self) -> Counters:
        """The numbers so far."""
        return replace(self._counters, replays=self._replays)

    @property
    def cost(self) -> CaptureCost:
        """Seconds of all captures, and bytes that they hold since `settle`."""
        return self._cost

    def __contains__(self, key: Hashable) -> bool:
        return key in self._captured

    def capture(
        self,
        key: Hashable,
        step: Callable[[], None],
        tensors: Sequence[Tensor],
        before: Callable[[], None] | None = None,
    ) -> None:
        """Record a step; `tensors` are its static inputs and outputs.

        It runs once, on a GPU once or more and before it is recorded; or what is given as `before` does.
        """
        assert key not in self._captured, f"step {key} is captured twice"
        start, before = time.perf_counter(), before or step
        graph = self._record(step, before)
        self._cost = replace(self._cost, seconds=self._cost.seconds + time.perf_counter() - start)
        self._captured[key] = _Captured(step, before, tuple(tensors), _signature(tensors), graph)
        self._counters = replace(self._counters, captures=self._counters.captures + 1)

    @property
    def compiles(self) -> bool:
        """Whether kernels are compiled for what is captured."""
        return self._device.type == "cuda" and not self._eager

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Runs the block on the stream of all captures, and waits for it; only on a GPU.

        Libraries keep a workspace for every stream that they meet, so what is not recorded yet uses the same one.
        """
        stream = _side_stream(self._device)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            yield
        torch.cuda.current_stream(self._device).wait_stream(stream)
        torch.cuda.synchronize(self._device)

    def renew(self, key: Hashable) -> None:
        """Record a captured step again, for what it calls has changed; only before the first request.

        Raises:
            KeyError: the step was never captured.
        """
        old = self._captured.pop(key)
        self.capture(key, old.step, old.tensors, old.before)

    def replay(self, key: Hashable) -> None:
        """Run a recorded step on what its static tensors now hold.

        Raises:
            KeyError: the step was never captured.
        """
        captured = self._captured[key]
        if captured.graph is not None:
            captured.graph.replay()
        else:
            if (now := _signature(captured.tensors)) != captured.signature:
                self._moved(captured, now)
            captured.step()
        self._replays += 1

    def settle(self) -> None:
        """Frees what the calls before the captures used; graphs keep memory of their own."""
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
            mine = [part for part in torch.cuda.memory_snapshot() if part["segment_pool_id"] == self._pool]
            self._cost = replace(self._cost, held_bytes=sum(part["total_size"] for part in mine))

    def _record(self, step: Callable[[], None], before: Callable[[], None]) -> torch.cuda.CUDAGraph | None:
        if self._eager or self._device.type != "cuda":
            before()
            return None
        brief, start = self.brief if self._captured else None, time.perf_counter()
        with self.aside(), nullcontext() if brief is None else brief():
            peak_bytes = _warmed_up(before, self._device, _WARM_UP_CALLS if brief is None else 1)
        if not self._captured or peak_bytes > _LARGE_BYTES:
            torch.cuda.empty_cache()
        self._cost = replace(self._cost, before_s=self._cost.before_s + time.perf_counter() - start)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(_side_stream(self._device)), self._recorded(graph):
            if not self._captured:
                # A pool that grows tensor by tensor falls into pieces that fit no other tensor. Large steps come first.
                torch.empty(peak_bytes, dtype=torch.uint8, device=self._device)
            step()
        return graph

    @contextmanager
    def _recorded(self, graph: torch.cuda.CUDAGraph) -> Iterator[None]:
        """Records the block; `torch.cuda.graph` would give all memory back before each of a hundred small steps."""
        assert self._pool is not None, "graphs of a GPU share a pool"
        graph.capture_begin(self._pool, capture_error_mode="thread_local")
        try:
            yield
        finally:
            graph.capture_end()

    def _moved(self, captured: _Captured, now: Signature) -> None:
        moved = sum(new[3] != old[3] for new, old in zip(now, captured.signature, strict=True))
        captured.signature = now
        self._counters = replace(
            self._counters,
            recaptures=self._counters.recaptures + 1,
            reallocations=self._counters.reallocations + moved,
        )


def inferring(work: Callable[_Given, _Returned]) -> Callable[_Given, _Returned]:
    """Have `work` run in inference mode; where its thread is in it for good, that takes no time.

    A round calls a handful of such functions.
    """

    @wraps(work)
    def run(*args: _Given.args, **named: _Given.kwargs) -> _Returned:
        if torch.is_inference_mode_enabled():
            return work(*args, **named)
        with torch.inference_mode():
            return work(*args, **named)

    return run


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def _warmed_up(step: Callable[[], None], device: torch.device, calls: int) -> int:
    """Runs a step until it compiles and allocates nothing new; returns the most bytes that it then holds at once."""
    for _ in range(calls):
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        step()
    return torch.cuda.max_memory_allocated(device) - before


def _signature(tensors: Sequence[Tensor]) -> Signature:
    signature: Signature = []
    for t in tensors:
        signature.append((t.shape, t.stride(), t.dtype, t.data_ptr()))
    return signature
