"""A tiny made-up pair for tests, written once per process."""

import atexit
import shutil
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.tiny_checkpoints import HYBRIDS, TinyShape, write_tiny


@dataclass(frozen=True, slots=True)
class Pair:
    """Folders of a target and its DFlash drafter."""

    target: Path
    drafter: Path


@cache
def made_up_pair(seed: int = 3, family: str = "qwen3") -> Pair:
    """A random target of 320 tokens and four layers with a random drafter; removed when the process ends.

    A drafter's block has 8 rows, or 16 for a hybrid.
    """
    folder = Path(tempfile.mkdtemp(prefix="paceline-pair-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    shape = TinyShape(block_size=16) if family in HYBRIDS else TinyShape()
    made = write_tiny(folder, seed, shape, family=family)
    return Pair(made.target, made.drafter)
