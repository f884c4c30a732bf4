"""A hostile head of a GGUF file is one line of an error, in bounded memory, whatever its bytes are."""

import random
import struct
import tracemalloc
from pathlib import Path

import pytest

from services.common.gguf.file import GgufError, read_gguf

MOST = 2**64 - 1
MOST_BYTES = 1 << 20


def text(content: bytes) -> bytes:
    return struct.pack("<Q", len(content)) + content


def head(
    tensors: int = 1, keys: int = 1, more: bytes = b"", name: bytes = b"a.weight", shape: tuple[int, ...] = (32,),
    kind: int = 0, offset: int = 0, dimensions: int | None = None,
) -> bytes:  # fmt: skip
    """A file of one key and one tensor of 128 bytes, or of what is asked."""
    found = b"GGUF" + struct.pack("<IQQ", 3, tensors, keys)
    found += text(b"general.architecture") + struct.pack("<I", 8) + text(b"llama") + more
    found += text(name) + struct.pack("<I", len(shape) if dimensions is None else dimensions)
    found += b"".join(struct.pack("<Q", size) for size in shape) + struct.pack("<IQ", kind, offset)
    return found + b"\0" * (-len(found) % 32) + b"\0" * 128


HOSTILE = {
    "tensors without end": head(tensors=MOST),
    "keys without end": head(keys=MOST),
    "no dimensions": head(shape=()),
    "dimensions without end": head(dimensions=2**32 - 1),
    "a dimension of zero": head(shape=(0,)),
    "zero beside a large dimension": head(shape=(2**63, 0)),
    "a large dimension": head(shape=(MOST,)),
    "a product past 64 bits": head(shape=(2**32, 2**32)),
    "an offset past the end": head(offset=MOST),
    "an unknown type": head(kind=2**32 - 1),
    "a name of two lines": head(name=b"a\nb"),
    "a name of megabytes": head(name=b"a" * (1 << 19)),
    "a name that is no text": head(name=b"\xff\xfe"),
    "a text without end": head(keys=2, more=struct.pack("<Q", MOST)),
    "an array without end": head(keys=2, more=text(b"x") + struct.pack("<IIQ", 9, 4, MOST)),
    "texts without end": head(keys=2, more=text(b"x") + struct.pack("<IIQ", 9, 8, 1 << 40)),
    "arrays in arrays": head(keys=2, more=text(b"x") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 9999),
    "an unknown kind of value": head(keys=2, more=text(b"x") + struct.pack("<I", 77)),
    "an alignment of zero": head(keys=2, more=text(b"general.alignment") + struct.pack("<II", 4, 0)),
    "nothing": b"",
}


def refused(path: Path) -> str:
    tracemalloc.start()
    try:
        with pytest.raises(GgufError) as error:
            read_gguf(path)
        assert tracemalloc.get_traced_memory()[1] < 4 * MOST_BYTES
    finally:
        tracemalloc.stop()
    return str(error.value)


def test_the_head_itself_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(head())
    assert read_gguf(tmp_path / "x.gguf").tensors["a.weight"].nbytes == 128


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_head_is_one_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(HOSTILE[name])
    said = refused(path)
    assert str(path) in said and "\n" not in said and len(said) < 1000 + len(str(path))


def test_changed_bytes_never_end_in_another_error(tmp_path: Path, full: bool) -> None:
    draw, path, whole = random.Random(3), tmp_path / "x.gguf", head()
    for _ in range(20_000 if full else 1000):
        changed = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            changed[draw.randrange(len(whole) - 128)] = draw.choice((0, 1, 127, 128, 255, draw.randrange(256)))
        path.write_bytes(changed[: draw.choice((len(changed), draw.randrange(1, len(changed))))])
        try:
            read_gguf(path)
        except GgufError as error:
            assert "\n" not in str(error)
