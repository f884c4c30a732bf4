"""Folders of checkpoints: local ones, and those that huggingface_hub fetches or has in its cache; imports no torch."""

from collections.abc import Sequence
from pathlib import Path

from services.common.gguf.file import GgufError
from services.common.gguf.folder import describing_folder, gguf_of
from services.common.gguf.packaged import packaged

TOKENIZER_FILES = ("*.json", "*.jinja")
CHECKPOINT_FILES = (*TOKENIZER_FILES, "*.safetensors", "manifest.sha256")


class FolderError(ValueError):
    """There is no such folder; the message is one line."""


def local_folder(name: str | Path, files: Sequence[str] = CHECKPOINT_FILES) -> Path:
    """Return the folder of a local path, or of a hub id ``owner/name``; files are the patterns of what is fetched.

    The folder of a GGUF file is one in the cache that describes it; a packaged model's name stands for its file.

    Without a connection the hub's cache answers.

    Raises:
        FolderError: there is no such folder and the id is neither cached nor to be fetched.
    """
    folder = Path(name)
    if described := _described(folder):
        return described
    if folder.is_dir():
        return folder
    if folder.is_absolute() or str(name).count("/") != 1:
        raise FolderError(f"{name}: no such folder")
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise FolderError(f"{name}: no such folder; install huggingface_hub to fetch it as a hub id") from error
    try:
        return Path(snapshot_download(str(name), allow_patterns=list(files)))
    except Exception as error:
        reason = " ".join(str(error).split())
        raise FolderError(f"{name}: no such folder, and not found as a hub id: {reason}") from error


def _described(path: Path) -> Path | None:
    try:
        gguf = gguf_of(path) if path.exists() else packaged(str(path))
        return None if gguf is None else describing_folder(gguf)
    except GgufError as error:
        raise FolderError(str(error)) from error
    except OSError as error:
        raise FolderError(f"{path}: the folder that describes it cannot be written: {error}") from error
