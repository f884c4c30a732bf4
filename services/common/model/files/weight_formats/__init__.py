"""Formats of packed weights: each is one file, found by the `quant_method` that it names; a new one needs no entry."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Any, cast

from services.common.model.fields.errors import ModelError
from services.common.model.fields.fields import Fields, read_object
from services.common.model.files.weight_format import Format, FormatFile

KEY = "quantization_config"
_BF16 = "take the original in bfloat16"
_OTHERS: Mapping[str, str] = MappingProxyType({
    "auto-round": "take the model's file in AutoRound's format auto_gptq, auto_awq or llm_compressor",
    "bitsandbytes": f"its files are for kernels of its own: {_BF16}, or save it as AWQ, GPTQ or compressed-tensors",
    "mxfp4": "gpt-oss packs experts so, which is not served: take another model",
})  # fmt: skip
"""Why some methods are not read."""


def _files() -> Iterator[FormatFile]:
    for file in iter_modules(__path__):
        yield cast(FormatFile, import_module(f"{__name__}.{file.name}"))


FORMATS: Mapping[str, FormatFile] = {file.METHOD: file for file in _files()}
BESIDE = tuple(file.BESIDE.file for file in FORMATS.values() if file.BESIDE)
"""Names of the files that may say in place of config.json how weights are packed."""


def read_format(fields: Fields) -> Format | None:
    """Read `quantization_config` of a config.json, or else of a file beside it; None when weights are plain.

    Raises:
        ModelError: weights are packed in a way that is not supported. The message says what to take instead.
    """
    own = fields.nested(KEY) or _beside(fields.source.parent)
    if not own:
        return None
    told = own.take("quant_method", (str, type(None)), default=None)
    method = told and told.lower()
    if method is None:
        raise own.error("quant_method", f"is missing: {_BF16}")
    if method not in FORMATS:
        remedy = _OTHERS.get(method, f"only {sorted(FORMATS)} are: {_BF16}")
        raise own.error("quant_method", f"{method!r} is not supported: {remedy}"[:400])
    return FORMATS[method].read(own)


def _beside(folder: Path) -> Fields:
    """Return what stands apart from config.json, in its words; empty if nothing does."""
    for method, file in FORMATS.items():
        told = file.BESIDE
        if told is None or not (path := folder / told.file).is_file():
            continue
        values = read_object(path)
        if told.within:
            values = Fields(path, values).take(told.within, (dict,))
        words = dict(told.words)
        return Fields(path, {"quant_method": method} | {words.get(name, name): one for name, one in values.items()})
    return Fields(folder, {})


def folder_format(folder: Path) -> Format | None:
    """Return how a folder's weights are packed; None when they are plain.

    Raises:
        ModelError: as `read_format`, or config.json is malformed.
    """
    path = folder / "config.json"
    return read_format(Fields(path, packing(read_object(path))))


def packing(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of a config.json that says how weights are packed, which stands beside a text model or in it."""
    inner = config.get("text_config")
    holders = (config, inner if isinstance(inner, dict) else {})
    return next((holder for holder in holders if holder.get(KEY) is not None), {})


def refusal(config: Mapping[str, Any], file: Path = Path("config.json")) -> str:
    """Return why weights packed as a config.json says are refused, and what to take; empty if they are read."""
    try:
        read_format(Fields(file, packing(config)))
    except ModelError as error:
        return str(error)
    return ""
