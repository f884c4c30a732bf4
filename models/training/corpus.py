"""The training text: a Python standard library, split by file."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

EXCLUDED = ("site-packages", "encodings", "pydoc_data", "__pycache__", "lib2to3/tests/data")
HELD_OUT_SHARE = 0.03
LARGEST_FILE = 600_000


@dataclass(frozen=True)
class Source:
    """One source file: its path below the library root and its text."""

    path: str
    text: str


@dataclass(frozen=True)
class Corpus:
    """The two sides of the split."""

    train: tuple[Source, ...]
    held_out: tuple[Source, ...]


def load_corpus(library: Path) -> Corpus:
    """Read every source file below the folder once; a hash of its path decides its side."""
    sources = _read_library(library)
    return Corpus(
        train=tuple(source for source in sources if not _is_held_out(source.path)),
        held_out=tuple(source for source in sources if _is_held_out(source.path)),
    )


def _read_library(root: Path) -> list[Source]:
    sources: list[Source] = []
    for file in sorted(root.rglob("*.py")):
        path = file.relative_to(root).as_posix()
        if any(part in path for part in EXCLUDED) or file.stat().st_size > LARGEST_FILE:
            continue
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if text.strip():
            sources.append(Source(path, text))
    return sources


def _is_held_out(path: str) -> bool:
    digest = hashlib.sha256(path.encode()).digest()
    return int.from_bytes(digest[:4], "big") < HELD_OUT_SHARE * 2**32
