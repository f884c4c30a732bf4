"""The tokenizer's files as one archive, for gateways that do not see the folder."""

import hashlib
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

from services.common.serving.files import read_regular
from services.common.serving.hub import TOKENIZER_FILES

CHUNK_BYTES = 1 << 20
BEGINNING = (1980, 1, 1, 0, 0, 0)
"""Time of every file, so that equal files are an equal archive."""


def archive(folder: Path) -> bytes:
    """A zip of the files of a folder that a tokenizer and its chat template are made of.

    Raises:
        OSError: one cannot be read.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as made:
        for path in sorted({path for pattern in TOKENIZER_FILES for path in folder.glob(pattern)}):
            made.writestr(zipfile.ZipInfo(path.name, BEGINNING), read_regular(path), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def chunks(data: bytes) -> Iterator[tuple[bytes, str]]:
    """Pieces of an archive; the last one has its SHA-256 beside."""
    for start in range(0, len(data), CHUNK_BYTES):
        last = start + CHUNK_BYTES >= len(data)
        yield data[start : start + CHUNK_BYTES], hashlib.sha256(data).hexdigest() if last else ""
