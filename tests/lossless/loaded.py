"""Models that rigs share: each is loaded and made TorchScript once, as in a service, and holds no request's state."""

from collections.abc import Callable, Hashable
from functools import lru_cache
from pathlib import Path
from typing import TypeVar, cast

Model = TypeVar("Model")
MOST = 24
"""Models that are kept."""


def loaded(load: Callable[..., Model], path: Path, **chosen: Hashable) -> Model:
    """What `load` makes of a folder or file, while no file of it changes."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    stamp = tuple((each.name, each.stat().st_mtime_ns, each.stat().st_size) for each in files)
    return cast(Model, _kept(load, path, stamp, tuple(chosen.items())))


@lru_cache(MOST)
def _kept(
    load: Callable[..., object], path: Path, stamp: tuple[object, ...], chosen: tuple[tuple[str, Hashable], ...]
) -> object:
    return load(path, **dict(chosen))
