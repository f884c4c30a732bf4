"""The sha256 manifest of a checkpoint folder, in the format of `sha256sum`."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

from services.common.model.fields.errors import ModelError
from services.common.serving.files import read_regular

MANIFEST_FILE = "manifest.sha256"
_THREADS = 8
"""Files that are read at a time."""
_PART_BYTES = 1 << 20
_LINE = re.compile(r"([0-9a-f]{64}) [ *](\S.*)")


def verify_manifest(folder: Path, required: Iterable[str], most_bytes: int | None = None) -> str | None:
    """Check every listed file and return the manifest's own digest; None when the folder has no manifest.

    Of files of more than `most_bytes`, if given, nothing is read.

    Raises:
        ModelError: a line is malformed, a file differs or is missing, or a required file is not listed.
    """
    path = folder / MANIFEST_FILE
    if not path.exists():
        return None
    listed = _parse(path)
    for name in required:
        if name not in listed:
            raise ModelError(f"{path}: {name} is not listed")
    sizes = {name: _size(folder / name) for name in listed}
    small = (name for name, size in sizes.items() if most_bytes is None or size <= most_bytes)
    _refuse_others(folder, {name: listed[name] for name in small})
    return _digest(path)


def write_manifest(folder: Path) -> None:
    """Write the manifest over all files of the folder."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != MANIFEST_FILE)
    lines = [f"{_digest(path)}  {path.name}\n" for path in files]
    (folder / MANIFEST_FILE).write_text("".join(lines), encoding="utf-8")


def _parse(path: Path) -> dict[str, str]:
    listed: dict[str, str] = {}
    try:
        text = read_regular(path).decode()
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from error
    for number, line in enumerate(text.splitlines(), 1):
        match = _LINE.fullmatch(line)
        if match is None or "/" in match[2] or match[2] in {".", ".."}:
            raise ModelError(f"{path}: line {number} is not 'sha256  file'")
        listed[match[2]] = match[1]
    return listed


def _size(path: Path) -> int:
    try:
        if path.is_file():
            return path.stat().st_size
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error}") from error
    raise ModelError(f"{path}: listed in {MANIFEST_FILE} but missing")


def _refuse_others(folder: Path, expected: Mapping[str, str]) -> None:
    """Refuse a file with another digest as soon as it is known: those that are being read then are read no further."""
    ended = Event()
    with ThreadPoolExecutor(_THREADS) as pool:  # a digest is made without Python's lock
        try:
            digests = pool.map(lambda name: _digest(folder / name, ended), expected)
            for (name, digest), found in zip(expected.items(), digests, strict=True):
                if found != digest:
                    remedy = f"fetch it again, or delete {MANIFEST_FILE} if it was changed on purpose"
                    raise ModelError(f"{folder / name}: sha256 differs from {MANIFEST_FILE}; {remedy}")
        finally:
            ended.set()
            pool.shutdown(wait=False, cancel_futures=True)


def _digest(path: Path, ended: Event | None = None) -> str:
    """Return the digest of a file; once it has `ended`, of its beginning."""
    digest = hashlib.sha256()
    try:
        with path.open("rb", buffering=0) as file:
            while (part := file.read(_PART_BYTES)) and not (ended is not None and ended.is_set()):
                digest.update(part)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error}") from error
    return digest.hexdigest()
