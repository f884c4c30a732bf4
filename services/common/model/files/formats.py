"""What holds the tensors of a folder: safetensors, plain or packed, or the GGUF file that the folder describes."""

from collections.abc import Callable
from pathlib import Path

from services.common.gguf.folder import WEIGHTS_FILE
from services.common.model.files.checkpoint import Checkpoint, IntegerSource, TensorSource
from services.common.model.files.gguf import GgufCheckpoint
from services.common.model.files.weight_formats import folder_format
from services.common.model.files.widened import WidenedCheckpoint


def open_checkpoint(folder: Path) -> TensorSource:
    """Open the tensors of a folder.

    Raises:
        ModelError: they are damaged, or packed in a way that is not supported.
    """
    return GgufCheckpoint(folder) if (folder / WEIGHTS_FILE).exists() else open_safetensors(folder)


def open_safetensors(folder: Path, read: Callable[[Path], Checkpoint] = Checkpoint) -> IntegerSource:
    """Open the tensors of a folder that has no GGUF file; `read` opens the files.

    Raises:
        ModelError: as `open_checkpoint`.
    """
    weight_format = folder_format(folder)
    checkpoint = read(folder)
    return checkpoint if weight_format is None else WidenedCheckpoint(checkpoint, weight_format)
