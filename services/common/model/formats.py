"""What holds the tensors of a folder: safetensors, or the GGUF file that the folder describes."""

from pathlib import Path

from services.common.gguf.folder import WEIGHTS_FILE
from services.common.model.checkpoint import Checkpoint, TensorSource
from services.common.model.gguf import GgufCheckpoint


def open_checkpoint(folder: Path) -> TensorSource:
    """Open the tensors of a folder.

    Raises:
        ModelError: they are damaged.
    """
    return GgufCheckpoint(folder) if (folder / WEIGHTS_FILE).exists() else Checkpoint(folder)
