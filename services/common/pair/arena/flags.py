"""Flags: 64-bit words of the arena that CUDA streams write and wait for, in the order of the device and without a host.

torch has no counterpart of the driver's stream memory operations (cuStreamWriteValue64, cuStreamWaitValue64), so the
driver is called. A wait ends when the word is at least the value; a word has room for every round's number.
"""

import ctypes
import threading
from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

_GREATER_OR_EQUAL = 0
_DEFAULT = 0
_BYTES = 8
FLAG_PAIRS = 1 << 16
"""Pairs in an arena: the number of drafters in a row that may be given up and live on."""
_thread = threading.local()


class FlagPair:
    """The two words of one generation: the target writes ``published``, the drafter ``drafted``.

    Each side ends its own waits, when the other is late or gone, by writing the other's word itself: the target by
    `release_target`, the drafter by `release_drafter`.
    """

    def __init__(self, flags: Tensor, generation: int) -> None:
        """`flags` is int64 `[2 * pairs]` on a GPU; the pair of a generation is its number modulo their count."""
        first = flags.data_ptr() + 2 * _BYTES * (generation % (len(flags) // 2))
        self._published, self._drafted = first, first + _BYTES
        self._side = torch.cuda.Stream(flags.device)
        self._device = flags.device

    def publish(self, number: int) -> None:
        """Enqueues on the present stream the write that says: the inputs of a round are published."""
        _write(_present(self._device), self._published, number)

    def await_published(self, number: int) -> None:
        """Makes the present stream wait for the inputs of a round."""
        _wait(_present(self._device), self._published, number)

    def draft(self, number: int) -> None:
        """Enqueues on the present stream the write that says: the drafts of a round are in the mailbox."""
        _write(_present(self._device), self._drafted, number)

    def await_drafted(self, number: int) -> None:
        """Makes the present stream wait for the drafts of a round."""
        _wait(_present(self._device), self._drafted, number)

    def release_target(self, number: int) -> None:
        """Ends the target's waits up to a round at once, from another stream."""
        _present(self._device)
        _write(self._side.cuda_stream, self._drafted, number)

    def release_drafter(self, number: int) -> None:
        """Ends the drafter's waits up to a round at once, from another stream."""
        _present(self._device)
        _write(self._side.cuda_stream, self._published, number)


def setter(word: Tensor) -> Callable[[int], object]:
    """Return what sets an int64 word in the order of the present stream; a GPU's driver does so without a kernel."""
    if word.device.type != "cuda":
        return word.fill_
    device, address = word.device, word.data_ptr()
    return lambda number: _write(_present(device), address, number)


def places_setter(words: Tensor) -> Callable[[Sequence[int], int, int], None]:
    """Return what sets int64 words of a GPU, by their places, to a number in the order of a stream, by its own number.

    The number is the call's: what the host writes anywhere before the stream comes to it does not reach the words.
    """
    address = words.data_ptr()

    def enqueue(places: Sequence[int], number: int, stream: int) -> None:
        for place in places:
            _write(stream, address + _BYTES * place, number)

    return enqueue


def row_copier(source: Tensor, target: Tensor) -> Callable[[int, int, int | None], object]:
    """Return what copies rows `first:end` of one static tensor to another, between a GPU and pinned memory of the host.

    It enqueues the copy on a stream, by its number; without one on the present stream. The driver's own call takes a
    fifth of torch's, which makes two views first. The copy reads the host's memory when the stream comes to it.

    Raises:
        ValueError: shapes or types differ, rows do not lie one behind the other, or not just one tensor is a GPU's.
    """
    if source.shape != target.shape or source.dtype != target.dtype:
        raise ValueError(f"rows of {source.dtype} {tuple(source.shape)}, to {target.dtype} {tuple(target.shape)}")
    if not (source.is_contiguous() and target.is_contiguous()):
        raise ValueError("rows must lie one behind the other")
    devices = [each.device for each in (source, target) if each.device.type == "cuda"]
    if len(devices) != 1:
        raise ValueError("one of the two must be a GPU's, the other the host's")
    device, size = devices[0], source[0].nbytes
    copy = _driver().cuMemcpyDtoHAsync_v2 if source.device == device else _driver().cuMemcpyHtoDAsync_v2
    read, written = source.data_ptr(), target.data_ptr()

    def enqueue(first: int, end: int, stream: int | None) -> None:
        present = _present(device)
        at = first * size
        _check(copy(written + at, read + at, (end - first) * size, present if stream is None else stream))

    return enqueue


def _present(device: torch.device) -> int:
    stream = torch.cuda.current_stream(device)
    if not getattr(_thread, "has_context", False):
        # The driver's calls need a context in this thread; any call of the runtime makes it current.
        stream.query()
        _thread.has_context = True
    return int(stream.cuda_stream)


@cache
def _driver() -> ctypes.CDLL:
    driver = ctypes.CDLL("libcuda.so.1")
    for name in ("cuStreamWriteValue64_v2", "cuStreamWaitValue64_v2"):
        function = getattr(driver, name)
        function.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint)
        function.restype = ctypes.c_int
    for name in ("cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2"):
        function = getattr(driver, name)
        function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
        function.restype = ctypes.c_int
    return driver


def _write(stream: int, address: int, value: int) -> None:
    _check(_driver().cuStreamWriteValue64_v2(stream, address, value, _DEFAULT))


def _wait(stream: int, address: int, value: int) -> None:
    _check(_driver().cuStreamWaitValue64_v2(stream, address, value, _GREATER_OR_EQUAL))


def _check(code: int) -> None:
    if code:
        raise RuntimeError(f"CUDA driver error {code} in an operation on a stream")
