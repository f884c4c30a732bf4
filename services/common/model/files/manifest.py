"""The sha256 manifest of a checkpoint folder, in the format of `sha256sum`."""

import hashlib
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from services.common.model.fields.errors import ModelError
from services.common.serving.files import read_regular

MANIFEST_FILE = "manifest.sha256"
_THREADS = 8
"""Files that are read at a time."""
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
    for name in listed:
        if not (folder / name).is_file():
            raise ModelError(f"{folder / name}: listed in {MANIFEST_FILE} but missing")
    names = [name for name in listed if most_bytes is None or (folder / name).stat().st_size <= most_bytes]
    with ThreadPoolExecutor(_THREADS) as pool:  # a digest is made without Python's lock
        for name, found in zip(names, pool.map(_digest, [folder / name for name in names]), strict=True):
            if found != listed[name]:
                pool.shutdown(wait=False, cancel_futures=True)
                remedy = f"fetch it again, or delete {MANIFEST_FILE} if it was changed on purpose"
                raise ModelError(f"{folder / name}: sha256 differs from {MANIFEST_FILE}; {remedy}")
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


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
