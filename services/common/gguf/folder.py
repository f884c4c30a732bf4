"""The folder that describes a GGUF file: Hugging Face's small files made from its keys, and a link to the file itself.

Folders lie in the user's cache, one for each head of a file at a place; weights are never copied.
"""

import json
import os
import re
import shutil
import tempfile
from hashlib import sha256
from pathlib import Path

from services.common.gguf.config import JOIN, config, generation_config, stretching
from services.common.gguf.file import MAGIC, SUFFIX, GgufError, GgufFile, read_gguf

WEIGHTS_FILE = "model.gguf"
"""The link to the file, in the folder that describes it."""
_TOKENIZER, _TEMPLATE = "tokenizer.json", "chat_template.jinja"
_DIGESTS = "manifest.sha256"
_FORM = "3"
"""Of the folders; another one makes new folders."""
_SPLIT = re.compile(r".*-\d{5}-of-\d{5}")
_PROJECTOR = "mmproj"
"""How files begin that turn images into rows, and lie beside a model."""


def gguf_of(path: Path) -> Path | None:
    """Return the GGUF file that a path is, or that a folder holds in place of a checkpoint; None for anything else.

    Raises:
        GgufError: a folder holds several, so that one must be named.
    """
    if path.is_file():
        with path.open("rb") as file:
            return path if path.suffix == SUFFIX or file.read(len(MAGIC)) == MAGIC else None
    if not path.is_dir() or any(path.glob("*.safetensors")) or (path / WEIGHTS_FILE).is_symlink():
        return None
    found = sorted(one for one in path.glob(f"*{SUFFIX}") if not one.name.startswith(_PROJECTOR))
    if len(found) > 1 and all(map(_SPLIT.fullmatch, (one.stem for one in found))):
        raise GgufError(f"{path}: holds {len(found)} parts of a model; {JOIN}")
    if len(found) > 1:
        raise GgufError(f"{path}: holds {len(found)} GGUF files; name one of them: {found[0]}")
    return found[0] if found else None


def describing_folder(path: Path) -> Path:
    """Return the folder that describes a GGUF file; it is made at first use.

    Raises:
        GgufError: the file is damaged or not served.
        OSError: the cache cannot be written; XDG_CACHE_HOME names another place.
    """
    file = read_gguf(path.absolute())
    folder = cache() / "gguf" / f"{path.stem}-{_key(file)}"
    if folder.is_dir():
        if _whole(folder):
            return folder
        shutil.rmtree(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{path.stem}-", dir=folder.parent))
    try:
        _write(file, made)
        made.chmod(0o755)
        made.rename(folder)
    except OSError:
        # Another process was first: a folder that holds files is never replaced.
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return folder


def cache() -> Path:
    """Return the user's folder for what can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paceline"


def _key(file: GgufFile) -> str:
    own = {name: sha256(path.read_bytes()).hexdigest() for name, path in _beside(file).items()}
    return sha256(f"{_FORM} {file.digest} {file.path} {own} ".encode() + stretching(file)).hexdigest()[:16]


def _beside(file: GgufFile) -> dict[str, Path]:
    """The model's own tokenizer, for files whose splitting of text is not known, and template, for files without."""
    paths = (file.path.with_name(name) for name in (_TOKENIZER, _TEMPLATE))
    return {path.name: path for path in paths if path.is_file()}


def _write(file: GgufFile, folder: Path) -> None:
    # The gateway has the library; what only reads heads of files does without.
    from services.common.gguf.tokenizer import tokenizer, tokenizer_config

    beside = _beside(file)
    _write_json(folder / "config.json", config(file))
    _write_json(folder / "generation_config.json", generation_config(file))
    _write_json(folder / "tokenizer_config.json", tokenizer_config(file))
    if _TOKENIZER not in beside:
        (folder / _TOKENIZER).write_text(tokenizer(file), "utf-8")
    for name, path in beside.items():
        (folder / name).write_bytes(path.read_bytes())
    (folder / _DIGESTS).write_text(_digests(folder), "utf-8")
    (folder / WEIGHTS_FILE).symlink_to(file.path)


def _digests(folder: Path) -> str:
    """The manifest over the small files, in the format of `sha256sum`."""
    names = sorted(path.name for path in folder.iterdir() if path.name not in (_DIGESTS, WEIGHTS_FILE))
    return "".join(f"{sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names)


def _whole(folder: Path) -> bool:
    """Whether the files are as they were written."""
    try:
        return (folder / _DIGESTS).read_text("utf-8") == _digests(folder)
    except (OSError, ValueError):
        return False


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")
