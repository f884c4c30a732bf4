"""Folders of checkpoints: local ones, and those that huggingface_hub fetches or has in its cache; imports no torch."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from services.common.gguf.file import GgufError
from services.common.gguf.folder import WEIGHTS_FILE, describing_folder, gguf_of
from services.common.gguf.packaged import packaged

TOKENIZER_FILES = ("*.json", "*.jinja")
CHECKPOINT_FILES = (*TOKENIZER_FILES, "*.safetensors", "manifest.sha256")
OWN_HEAD = "mtp"
"""In the place of a drafter's folder: the drafting head in the model's own."""
_ID = re.compile(r"(\w[\w.-]*/\w[\w.-]*)(?:@(\w[\w.-]*))?")
_FILES = (".bin", ".gguf", ".json", ".pt", ".pth", ".safetensors")
_HUB_S = 10.0
"""How long the hub may take to list a model's files."""


class FolderError(ValueError):
    """There is no such folder; the message is one line."""


def is_hub_id(name: str | Path) -> bool:
    """Whether a name is ``owner/name`` or ``owner/name@revision`` of the hub.

    One that is a path, or lies in a folder that is here, is not.
    """
    text = str(name)
    return _ID.fullmatch(text) is not None and not text.endswith(_FILES) and not Path(text).parent.is_dir()


def local_path(name: str | Path) -> Path:
    """Return the path that a name is, if it is no hub id; ``~`` is the user's home."""
    return Path(name).expanduser()


def local_folder(name: str | Path, files: Sequence[str] = CHECKPOINT_FILES) -> Path:
    """Return the folder of a local path, or of a hub id ``owner/name``; files are the patterns of what is fetched.

    ``owner/name@revision`` pins what is fetched: a commit, a tag or a branch.

    The folder of a GGUF file is one in the cache that describes it; a packaged model's name stands for its file.

    Without a connection the hub's cache answers.

    Raises:
        FolderError: there is no such folder and the id is neither cached nor to be fetched.
    """
    folder = local_path(name)
    if described := described_folder(folder):
        return described
    if folder.is_dir():
        return folder
    if not is_hub_id(name):
        raise FolderError(f"{name}: no such folder")
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise _without_library(name) from error
    try:
        repository, revision = _asked(str(name))
        return Path(snapshot_download(repository, allow_patterns=list(files), revision=revision))
    except Exception as error:
        raise _not_found(name, error) from error


def described_folder(path: Path) -> Path | None:
    """Return the folder that describes a GGUF file or a packaged model, maybe the path itself; None for neither.

    Raises:
        FolderError: the file is damaged or not served, or the folder cannot be written.
    """
    try:
        if (path / WEIGHTS_FILE).is_symlink():
            return path
    except OSError:
        return None  # a name that is too long names nothing, and what looks at the path next says so
    try:
        gguf = gguf_of(path) if path.exists() else packaged(str(path))
        return None if gguf is None else describing_folder(gguf)
    except GgufError as error:
        raise FolderError(str(error)) from error
    except OSError as error:
        at, why = error.filename or "the cache", error.strerror or error
        raise FolderError(
            f"{path}: {at} cannot be written: {why}; XDG_CACHE_HOME=FOLDER names another cache"
        ) from error


def hub_files(name: str) -> Mapping[str, int]:
    """Return names and bytes of the files of a hub id; nothing of them is fetched.

    Without a connection they are those of the hub's cache, where weights may be missing.

    Raises:
        FolderError: the id is neither cached nor known to the hub.
    """
    try:
        from huggingface_hub import HfApi, snapshot_download
    except ImportError as error:
        raise _without_library(name) from error
    try:
        repository, revision = _asked(name)
        told = HfApi().model_info(repository, files_metadata=True, timeout=_HUB_S, revision=revision).siblings or []
        return {file.rfilename: file.size or 0 for file in told}
    except Exception as error:
        refused = error
    try:
        folder = Path(snapshot_download(repository, local_files_only=True, revision=revision))
    except Exception:
        raise _not_found(name, refused) from refused
    return {path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()}


def _asked(name: str) -> tuple[str, str | None]:
    """The repository of a hub id, and its revision where one is named."""
    found = _ID.fullmatch(name)
    return (found[1], found[2]) if found else (name, None)


def _without_library(name: str | Path) -> FolderError:
    return FolderError(f"{name}: no such folder; install huggingface_hub to fetch it as a hub id")


def _not_found(name: str | Path, error: Exception) -> FolderError:
    """Say what the hub said, in our words where they are known."""
    page = f"https://huggingface.co/{_asked(str(name))[0]}"
    reasons = {
        "GatedRepoError": f"its makers want their terms accepted, on {page}; then set HF_TOKEN",
        "RevisionNotFoundError": "the hub has no such revision of it",
        "RepositoryNotFoundError": "the hub has none of this name, or a private one that needs HF_TOKEN",
        "OfflineModeIsEnabled": "HF_HUB_OFFLINE is set, and it is not in the cache",
        "LocalEntryNotFoundError": "the hub does not answer, and it is not in the cache",
        "ConnectError": "the hub does not answer, and it is not in the cache",
        "ConnectTimeout": "the hub does not answer, and it is not in the cache",
    }
    reason = reasons.get(type(error).__name__) or " ".join(str(error).split())
    return FolderError(f"{name}: no such folder, and not found as a hub id: {reason}")
