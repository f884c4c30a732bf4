"""One small target and its texts for all tests of drafters for somebody else's model."""

from pathlib import Path

import pytest

from models.training.foreign.corpus import Conversations
from models.training.foreign.frozen import FrozenTarget, load_frozen
from tests.unit.models.foreign_pair import target_folder, written


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return target_folder(tmp_path_factory.mktemp("foreign") / "target", "llama")


@pytest.fixture(scope="session")
def target(folder: Path) -> FrozenTarget:
    return load_frozen(folder, "cpu")


@pytest.fixture(scope="session")
def texts(target: FrozenTarget) -> Conversations:
    return written(target)
