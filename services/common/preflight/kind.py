"""What a path or a hub id holds in place of a checkpoint, told by names and first bytes alone; imports no torch."""

import difflib
import json
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from services.common.preflight.problem import Problem
from services.common.preflight.source import Source
from services.common.serving.hub import local_path

CONFIG, TOKENIZER = "config.json", "tokenizer.json"
INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
_HUB = r"(?:www\.)?(?:huggingface\.co|hf\.co)/"
_ADDRESS = re.compile(rf"(?:(?:hf|huggingface):(?://)?(?:{_HUB})?|https?://{_HUB})([\w.-]+/[\w.-]+)")
_NO_SCHEME = re.compile(rf"{_HUB}([\w.-]+/[\w.-]+)")
_IN_CACHE = re.compile(r"models--([\w.-]+?)--([\w.-]+)/?")
_BLANKS = re.compile(r"[\w.-]+/[\w.-]+(?:\s+[\w.-]+)*")
_WINDOWS = re.compile(r"([A-Za-z]):[\\/](.*)", re.DOTALL)
"""Names that people give in place of a hub id or a path."""
_OTHER_ADDRESS = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_LONGEST_NAME = 256
_WORDS = ("smollm2", "embedded")
_SMALL = 1 << 16
"""A pointer, or the page of a failed download, has fewer bytes."""
_EITHER = "give the folder that holds config.json, or a model of the hub as owner/name"
_LAYOUT = "paceline serves folders in Hugging Face's layout: config.json, tokenizer.json and *.safetensors"
_TORCH = (".bin", ".pt", ".pth", ".ckpt")
_NO_WEIGHTS = ("optimizer", "scheduler", "training_args", "rng_state")
_CONVERT = (
    "convert them: load the model with transformers, then save_pretrained(FOLDER, safe_serialization=True); "
    "a drafter's: safetensors.torch.save_file(torch.load(FILE, weights_only=True), 'model.safetensors')"
)
_OTHERS = {
    **dict.fromkeys(_TORCH, "pickled"),
    ".gguf": "GGUF",
    ".h5": "TensorFlow's",
    ".msgpack": "Flax's",
    ".onnx": "ONNX's",
    ".npz": "NumPy's",
    ".engine": "TensorRT's",
}
_UNFINISHED = (".incomplete", ".part", ".crdownload", ".download", ".aria2")
_BEGINNINGS = {
    b"version https://git-lfs": ("is a Git LFS pointer, not the file itself", "run: git lfs install && git lfs pull"),
    b"<!DOCTYPE": ("is a web page, not the file itself", "download it again: the server refused or sent its page"),
    b"<!doctype": ("is a web page, not the file itself", "download it again: the server refused or sent its page"),
    b"<html": ("is a web page, not the file itself", "download it again: the server refused or sent its page"),
}
_ARCHIVE = "is an archive or pickled, not safetensors", "unpack it, or take the model's safetensors"
_NO_TENSORS = {
    b"PK\x03\x04": _ARCHIVE,
    b"\x80\x02": _ARCHIVE,
    b"\x1f\x8b": _ARCHIVE,
    b"GGUF": ("is a GGUF file under another name", "give it its name, FILE.gguf, and that as --model"),
}
"""How files begin that are called safetensors and are others; a length of a head, as safetensors have, may begin so."""
_LENGTH = 8


def path_problem(name: str) -> Problem | None:
    """What is wrong with a local path that must be a folder."""
    if address := _ADDRESS.match(name):
        return Problem(name, "is an address, not a name", f"did you mean {address[1].partition('?')[0]}?")
    if address := _OTHER_ADDRESS.match(name):
        local = address["scheme"].lower() == "file" and address["rest"].removeprefix("localhost")
        remedy = f"did you mean {local}?" if local else "fetch it, and give its folder"
        return Problem(name[:_LONGEST_NAME], "is an address, not a name", remedy)
    if name and not name.strip():
        return Problem(repr(name[:_LONGEST_NAME]), "is blank, no name", _EITHER)
    path = local_path(name)
    try:
        kind = path.stat().st_mode
    except (OSError, ValueError):
        return Problem(name[:_LONGEST_NAME], "no such folder", _meant(name) or _nearest(path) or _EITHER)
    if stat.S_ISDIR(kind):
        return None if os.access(path, os.R_OK | os.X_OK) else Problem(name, "may not be read by this user")
    if not stat.S_ISREG(kind):
        return Problem(name, "is neither a folder nor a file")
    return _file_problem(name, path)


def begun_problem(name: str) -> Problem | None:
    """What is wrong with one file that is named: a download that was not finished, or what came in place of one."""
    path = local_path(name)
    beginning = first_bytes(path)
    if beginning and path.name.endswith(_UNFINISHED):
        return Problem(name, "is a download that was not finished", "finish it")
    return _begun(name, beginning)


def _begun(place: str, beginning: bytes) -> Problem | None:
    return next((Problem(place, *said) for start, said in _BEGINNINGS.items() if beginning.startswith(start)), None)


def _meant(name: str) -> str:
    """A hub id, or a path, that is written otherwise than here; empty for any other name."""
    if name[:1] in ("'", '"') and name[-1:] == name[:1]:
        return "leave out the quotes"
    if found := _NO_SCHEME.match(name):
        return f"did you mean {found[1]}?"
    if found := _IN_CACHE.fullmatch(name):
        return f"did you mean {found[1]}/{found[2]}?"
    if found := _WINDOWS.fullmatch(name):
        inner = found[2].replace("\\", "/")
        return f"paceline runs on Linux; in WSL that is /mnt/{found[1].lower()}/{inner[:_LONGEST_NAME]}"
    tidy = name.strip().rstrip("/").replace("\\", "/")
    meant = "-".join(tidy.split())
    return f"did you mean {meant}?" if meant != name and _BLANKS.fullmatch(tidy) else ""


def _nearest(path: Path) -> str:
    """The folder beside it whose name is most alike; of a single word, a name of a model that is known by one."""
    beside = path.parent
    try:
        names = [one.name for one in beside.iterdir() if one.is_dir()]
    except (OSError, ValueError):
        return f"{str(beside)[:_LONGEST_NAME]} is not there either"
    word = difflib.get_close_matches(path.name.lower(), _WORDS, n=1) if beside == Path() else []
    if word and word[0] != path.name:
        return f"did you mean {word[0]}?"
    if found := difflib.get_close_matches(path.name, names, n=1):
        return f"did you mean {beside / found[0]}?"
    return "a model of the hub is named owner/name" if beside == Path() else ""


def _file_problem(name: str, path: Path) -> Problem:
    if path.name in (CONFIG, TOKENIZER, INDEX) or path.suffix == ".safetensors":
        return Problem(name, "is one file of a checkpoint", f"give its folder: {path.parent}")
    return Problem(name, "is a file", _LAYOUT)


def first_bytes(path: Path) -> bytes:
    """Return the first 64 bytes of a file; empty when it is no regular file or cannot be read."""
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(64)
    except OSError:
        return b""


def names_problem(source: Source, weightless: bool = False) -> Problem | None:
    """What is there in place of a checkpoint, by the names of the files; a `weightless` one needs no tensors."""
    names = source.files.keys()
    weights = [name for name in names if name.endswith(".safetensors") and not name.startswith("adapter_")]
    if not weights and any(name.startswith(("adapter_config.", "adapter_model.")) for name in names):
        return _adapter(source)
    if CONFIG not in names:
        return _no_config(source, names)
    if not weightless and len(weights) == 1 and not {SINGLE, INDEX} & names and "-of-" not in weights[0]:
        return _named_otherwise(source, weights[0])
    return None if weights or weightless else _no_weights(source, names)


def _named_otherwise(source: Source, name: str) -> Problem:
    if name.startswith("consolidated."):
        return Problem(source.place(name), "is in its makers' own layout", f"take the checkpoint that has {SINGLE}")
    return Problem(source.place(name), f"is the only file of weights, and not named {SINGLE}", "rename it")


def _adapter(source: Source) -> Problem:
    base = ""
    if not source.remote:
        try:
            told = json.loads((source.folder() / "adapter_config.json").read_text(encoding="utf-8"))
            base = str(told.get("base_model_name_or_path") or "")
        except (OSError, ValueError, AttributeError, RecursionError):
            pass
    of = f" of {base[:200]}" if base else ""
    remedy = "merge it into its base model (peft: merge_and_unload, save_pretrained) and serve the merged folder"
    return Problem(source.name, f"is a LoRA adapter{of}, not a model", remedy)


def _no_config(source: Source, names: Iterable[str]) -> Problem:
    told, place = set(names), source.name
    if any(name.endswith(".gguf") for name in told):
        return Problem(place, "holds GGUF files", f"{_LAYOUT}: take the model's original checkpoint")
    if "params.json" in told or any(name.startswith("consolidated.") for name in told):
        return Problem(place, "is in its makers' own layout", f"{_LAYOUT}: take the checkpoint named -hf or -Instruct")
    if "model_index.json" in told:
        return Problem(place, "is a diffusers pipeline, not a language model")
    inner = [] if source.remote else _inner(source.folder())
    if inner:
        return Problem(place, f"{CONFIG}: no such file", f"there is one below it, give that folder: {inner[0]}")
    if not told:
        return Problem(place, "is empty", "" if source.remote else "was the download finished?")
    return Problem(source.place(CONFIG), "no such file", _LAYOUT)


def _inner(folder: Path) -> list[Path]:
    """Folders below that look like checkpoints; a folder of the hub's cache has them two below."""
    found = [*folder.glob(f"*/{CONFIG}"), *folder.glob(f"snapshots/*/{CONFIG}")]
    return sorted((path.parent for path in found), key=lambda one: one.stat().st_mtime, reverse=True)


def _no_weights(source: Source, names: Iterable[str]) -> Problem:
    told = sorted(names)
    for ending, whose in _OTHERS.items():
        found = [name for name in told if name.endswith(ending) and not name.startswith(_NO_WEIGHTS)]
        if found:
            remedy = _CONVERT if ending in _TORCH else "take its safetensors"
            return Problem(source.name, f"has {whose} weights only ({found[0]}); safetensors are read", remedy)
    if unfinished := [name for name in told if name.endswith(_UNFINISHED)]:
        return Problem(source.place(unfinished[0]), "is a download that was not finished", "finish it")
    if INDEX in told:
        return Problem(source.name, f"holds {INDEX} and none of its shards", "fetch *.safetensors too")
    return Problem(source.name, "has no weights", f"put {SINGLE}, or shards and {INDEX}, into it")


def content_problem(source: Source) -> Problem | None:
    """The first file here that is a pointer, a page, a link to nothing, or not a file."""
    if source.remote:
        return None
    for path in sorted(source.folder().iterdir()):
        if path.suffix not in (".json", ".safetensors", ".jinja"):
            continue
        if not path.is_file():
            gone = path.is_symlink() and not path.exists()
            what = "is a link to a file that is gone" if gone else "is not a regular file"
            return Problem(str(path), what, "fetch the model again" if gone else "")
        if not os.access(path, os.R_OK):
            return Problem(str(path), "may not be read by this user")
        if one := _beginning_problem(path):
            return one
    return None


def _beginning_problem(path: Path) -> Problem | None:
    size = path.stat().st_size
    if size == 0:
        return Problem(str(path), "is empty", "fetch it again")
    beginning = first_bytes(path)
    said = _BEGINNINGS if size < _SMALL else {}
    if path.suffix == ".safetensors" and int.from_bytes(beginning[:_LENGTH], "little") > size - _LENGTH:
        said = said | _NO_TENSORS
    for start, (sentence, remedy) in said.items():
        if beginning.startswith(start):
            return Problem(str(path), sentence, f"{remedy} (in {path.parent})" if "lfs" in remedy else remedy)
    return None
