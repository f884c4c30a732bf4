"""The head of a GGUF file: keys, values and the table of tensors. All counts and places are checked.

The `gguf` package's own reader takes seconds for a vocabulary and needs numpy, which the gateway does without.
"""

import mmap
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any

SUFFIX = ".gguf"
MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    30: ("BF16", 1, 2),
}
"""By ggml's number: name, numbers of a block, bytes of a block."""
_OTHER_TYPES = {
    9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S",
    22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0",
    35: "TQ2_0", 39: "MXFP4", 40: "NVFP4",
}  # fmt: skip
SUPPORTED_TYPES = tuple(sorted(name for name, _, _ in _TYPES.values()))
BITS = {name: 8 * size / numbers for name, numbers, size in _TYPES.values()}
"""Of a number, by name of type."""
_MOST_DIMENSIONS = 4
_MOST_NAME = 256
_SAMPLES, _SAMPLE_BYTES = 512, 64
"""Tensors of which some bytes count for the digest, at most, and how many: models of one head differ in these."""
_DEFAULT_ALIGNMENT = 32


class GgufError(ValueError):
    """A GGUF file that is damaged or not served; the message is one line that names it."""


@dataclass(frozen=True)
class GgufTensor:
    """Where a tensor lies. `shape` has the lines first, as torch's; `start` counts from the file's first byte."""

    type: str
    shape: tuple[int, ...]
    start: int
    nbytes: int


@dataclass(frozen=True)
class GgufFile:
    """Keys and tensors of a file; `digest` is that of its head, its size and some bytes of its tensors."""

    path: Path
    keys: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]
    digest: str

    def error(self, name: str, message: str) -> GgufError:
        """Return an error that names the file and what in it is at fault."""
        return GgufError(f"{self.path}: {name}: {message}")


def read_gguf(path: Path) -> GgufFile:
    """Read the head of a file.

    Raises:
        GgufError: it cannot be read, is cut short or damaged, or holds tensors of a type that is not served.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _read(path, data)
    except (OSError, ValueError, struct.error) as error:
        if isinstance(error, GgufError):
            raise
        if path.is_file() and not path.stat().st_size:
            raise GgufError(f"{path}: is empty; fetch it again") from error
        raise GgufError(f"{path}: is not a complete GGUF file: {error}; fetch it again") from error


def _read(path: Path, data: mmap.mmap) -> GgufFile:
    head = _Head(data)
    if head.bytes(4) != MAGIC:
        raise ValueError(f"it does not begin with {MAGIC.decode()}")
    version = head.number("I")
    if version not in _VERSIONS:
        if int.from_bytes(version.to_bytes(4, "little"), "big") in _VERSIONS:
            raise GgufError(f"{path}: has the other order of bytes; turn it: gguf-convert-endian {path.name} little")
        known = ", ".join(map(str, _VERSIONS))
        raise GgufError(f"{path}: is a GGUF file of version {version}, and only {known} are read; take another file")
    tensors, keys = head.count(), head.count()
    values = {head.string(): head.value(head.number("I")) for _ in range(keys)}
    table = [_row(head) for _ in range(tensors)]
    alignment = values.get("general.alignment", _DEFAULT_ALIGNMENT)
    if type(alignment) is not int or not 0 < alignment <= 1 << 20 or alignment % 8:
        raise ValueError(f"general.alignment is {alignment!r}")
    start = -(-head.place // alignment) * alignment
    placed = _placed(path, table, start, len(data))
    digest = sha256(data[: head.place] + str(len(data)).encode())
    for tensor in [*placed.values()][:: 1 + len(placed) // _SAMPLES]:
        middle = tensor.start + tensor.nbytes // 2
        digest.update(data[middle : middle + _SAMPLE_BYTES])
    return GgufFile(path, values, placed, digest.hexdigest())


class _Head:
    """Reads on from `place`; all that says how much follows is held against what the file has left."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.place = data, 0
        self._readers: Mapping[int, Callable[[], Any]] = {_STRING: self.string, _ARRAY: self._array}

    def bytes(self, count: int) -> bytes:
        end = self.place + count
        if end > len(self.data):
            raise ValueError("it ends within its head")
        part, self.place = self.data[self.place : end], end
        return part

    def number(self, kind: str) -> Any:
        return struct.unpack(f"<{kind}", self.bytes(struct.calcsize(f"<{kind}")))[0]

    def count(self) -> int:
        """How many things follow, each of one byte at least."""
        count: int = self.number("Q")
        if count > len(self.data) - self.place:
            raise ValueError("it ends within its head")
        return count

    def string(self) -> str:
        return self.bytes(self.count()).decode("utf-8")

    def value(self, kind: int) -> Any:
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind not in self._readers:
            raise ValueError(f"a value has type {kind}, which no version has")
        return self._readers[kind]()

    def _array(self) -> list[Any]:
        kind, count = self.number("I"), self.count()
        if kind == _ARRAY:
            raise ValueError("an array of arrays is in no model")
        if kind in _NUMBERS:
            form = f"<{count}{_NUMBERS[kind]}"
            return list(struct.unpack(form, self.bytes(struct.calcsize(form))))
        return [self.value(kind) for _ in range(count)]


def _row(head: _Head) -> tuple[str, tuple[int, ...], int, int]:
    """Name, shape with the lines first, type and offset of one tensor."""
    name, dimensions = head.string(), head.number("I")
    if not 0 < dimensions <= _MOST_DIMENSIONS:
        raise ValueError(f"tensor {name[:_MOST_NAME]!r} has {dimensions} dimensions")
    shape = tuple(head.number("Q") for _ in range(dimensions))[::-1]
    if not name.isprintable() or len(name) > _MOST_NAME or 0 in shape:
        raise ValueError(f"tensor {name[:_MOST_NAME]!r} has no name or no numbers")
    return name, shape, head.number("I"), head.number("Q")


def _placed(
    path: Path, table: list[tuple[str, tuple[int, ...], int, int]], start: int, size: int
) -> dict[str, GgufTensor]:
    placed: dict[str, GgufTensor] = {}
    for name, shape, kind, offset in table:
        if kind not in _TYPES:
            known = f"only {', '.join(SUPPORTED_TYPES)} are: take a file of one of these"
            raise GgufError(
                f"{path}: tensor {name} has type {_OTHER_TYPES.get(kind, kind)}, which is not served; {known}"
            )
        label, numbers, block = _TYPES[kind]
        if shape[-1] % numbers:
            raise ValueError(f"tensor {name} of type {label} has lines of {shape[-1]} numbers")
        if name in placed:
            raise ValueError(f"tensor {name} stands in it twice")
        placed[name] = GgufTensor(label, shape, start + offset, prod(shape) // numbers * block)
        if placed[name].start + placed[name].nbytes > size:
            raise GgufError(f"{path}: is cut short: tensor {name} ends behind its {size} bytes; download it again")
    return placed
