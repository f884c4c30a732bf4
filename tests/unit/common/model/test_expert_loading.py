"""A checkpoint of many experts in several files is read without a second copy of it in memory."""

from __future__ import annotations

import ctypes
import gc
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import save_file

from services.common.model import load_target
from services.common.model.families import read_target_spec
from services.common.model.files.checkpoint import INDEX_FILE
from services.common.model.weights.weights import model_shapes
from tests.support.tiny_checkpoints import TinyShape, write_configs

SHAPE = TinyShape(hidden=256, inner=256, layers=4)
EXPERTS = {"num_experts": 24, "num_experts_per_tok": 4, "moe_intermediate_size": 256}
SHARDS = 5
BESIDE = 1.2
"""Memory at its most, by that of the weights: a shard's worth beside them, and what allocators keep."""


def sharded(folder: Path) -> Path:
    """Write a mixture's tensors in files of equal parts, with their index."""
    target = write_configs(folder, SHAPE, "qwen3_moe", EXPERTS).target
    shapes, files = list(model_shapes(read_target_spec(target)).items()), dict[str, str]()
    for number in range(SHARDS):
        part = dict(shapes[number * len(shapes) // SHARDS : (number + 1) * len(shapes) // SHARDS])
        name = f"model-{number}.safetensors"
        save_file({each: torch.full(shape, 0.01, dtype=torch.bfloat16) for each, shape in part.items()}, target / name)
        files |= dict.fromkeys(part, name)
    (target / INDEX_FILE).write_text(json.dumps({"weight_map": files}))
    return target


def own_bytes() -> int:
    """Memory of this process that no file backs."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


@contextmanager
def most() -> Iterator[list[int]]:
    """The most bytes that the block had beside those before it, in the one place of the list."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # pages that an earlier test has freed would be taken again unseen
    found, over, before = [0], threading.Event(), own_bytes()

    def look() -> None:
        """Once more at the end: what was read may still be there, and this thread may have waited all the while."""
        while not over.wait(0.001):
            found[0] = max(found[0], own_bytes() - before)
        found[0] = max(found[0], own_bytes() - before)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield found
    finally:
        over.set()
        looking.join()


def test_weights_are_in_memory_once(tmp_path: Path) -> None:
    folder = sharded(tmp_path)
    with most() as found:
        target = load_target(folder, torch.float32)
    assert 0.5 * target.weight_bytes < found[0] < BESIDE * target.weight_bytes


def test_a_second_copy_is_seen(tmp_path: Path) -> None:
    """What the bound is for: the files' tensors are kept beside the model."""
    folder = sharded(tmp_path)
    spec = read_target_spec(folder)
    with most() as found:
        kept = [torch.zeros(shape) + 1.0 for shape in model_shapes(spec).values()]
        target = load_target(folder, torch.float32)
    assert sum(each.nbytes for each in kept) <= target.weight_bytes
    assert found[0] > BESIDE * target.weight_bytes
