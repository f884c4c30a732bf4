"""A target of the tiny pair in this process, on the device that tests run on."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from services.target.build_device import Worker, build_worker
from services.target.settings import TargetSettings
from tests.bench.gpu.shapes import TINY
from tests.kernels.gpu.devices import DEVICE
from tests.support.tiny_checkpoints import write_configs


@contextmanager
def tiny_worker(device: str = DEVICE, **settings: Any) -> Iterator[Worker]:
    """Yields the worker of a pair with random weights; closes it."""
    with tempfile.TemporaryDirectory(prefix="pl") as folder:
        pair = write_configs(Path(folder), TINY)
        made = build_worker(
            TargetSettings(
                model=str(pair.target),
                drafter_model=str(pair.drafter),
                drafter_address="unix:/nowhere",
                random_weights=True,
                device=device,
                dtype="bfloat16" if device == "cuda" else "float32",
                context_limit=1024,
                memory_bytes=4 << 30,
                adaptive=False,
                **settings,
            ),
            os.getpid(),
        )
        try:
            yield made
        finally:
            made.close()
