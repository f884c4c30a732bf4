"""Settings of a service: TOML, then PACELINE_* variables, then flags, into one frozen dataclass."""

import argparse
import dataclasses
import json
import os
import sys
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from services.common.errors import PacelineError, invalid_field

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
PREFIX = "PACELINE_"
# Read by other parts of the system, so no service takes them for its own.
RESERVED = frozenset({"PACELINE_SYNC_POINTS"})
_TRUE, _FALSE = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})


def load(cls: type[T], argv: Sequence[str], environ: Mapping[str, str] | None = None) -> T:
    """Builds cls from --config FILE, the environment and flags; the later of these wins.

    --print-config prints the result as JSON and exits; values of fields with metadata secret are hidden. A field can be
    read from a file by appending "-file" to its flag or "_FILE" to its variable.

    Raises:
        SystemExit: with code 2 and one line, for an unknown key or a bad value.
    """
    try:
        flags, config, show = _flags(argv)
        values = _toml(config) | _environment(os.environ if environ is None else environ) | flags
        built = _build(cls, values)
    except (PacelineError, ValueError, OSError, TypeError) as error:
        print(f"settings: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    if show:
        print(describe(built))
        raise SystemExit(0)
    return built


def describe(settings: "DataclassInstance") -> str:
    """The settings as JSON; secrets are hidden."""
    secret = {f.name for f in dataclasses.fields(settings) if f.metadata.get("secret")}
    values = dataclasses.asdict(settings)
    return json.dumps({k: "***" if k in secret and v else v for k, v in values.items()}, indent=2)


def _flags(argv: Sequence[str]) -> tuple[dict[str, Any], str, bool]:
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--config", default="")
    parser.add_argument("--print-config", action="store_true")
    known, rest = parser.parse_known_args(list(argv))
    values: dict[str, Any] = {}
    words = iter(rest)
    for word in words:
        if not word.startswith("--"):
            raise invalid_field(word, "flags start with --")
        name, equals, value = word[2:].partition("=")
        values[name.replace("-", "_")] = value if equals else next(words, "")
    return values, known.config, known.print_config


def _toml(path: str) -> dict[str, Any]:
    return dict(tomllib.loads(Path(path).read_text())) if path else {}


def _environment(environ: Mapping[str, str]) -> dict[str, Any]:
    return {
        name.removeprefix(PREFIX).lower(): value
        for name, value in environ.items()
        if name.startswith(PREFIX) and name not in RESERVED
    }


def _build(cls: type[T], values: Mapping[str, Any]) -> T:
    hints = typing.get_type_hints(cls)
    names = {field.name for field in dataclasses.fields(cls)}
    chosen: dict[str, Any] = {}
    for key, value in values.items():
        name, text = key, value
        if key not in names and key.endswith("_file") and key.removesuffix("_file") in names:
            name, text = key.removesuffix("_file"), Path(str(value)).read_text().strip()
        if name not in names:
            raise invalid_field(key, f"unknown setting of {cls.__name__}")
        chosen[name] = _converted(name, text, hints[name])
    return cls(**chosen)


def _converted(name: str, value: Any, hint: Any) -> Any:
    """The value in the type of its field."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value in ("", None):
            return None
        return _converted(name, value, next(a for a in arguments if a is not type(None)))
    if origin is tuple:
        items = [part for part in value.split(",") if part] if isinstance(value, str) else list(value)
        return tuple(_converted(name, item, arguments[0]) for item in items)
    if origin is typing.Literal:
        if value not in arguments:
            raise invalid_field(name, f"must be one of {', '.join(map(str, arguments))}")
        return value
    return _scalar(name, value, hint)


def _scalar(name: str, value: Any, kind: Any) -> Any:
    if kind is bool and isinstance(value, str):
        if value.lower() in _TRUE | _FALSE:
            return value.lower() in _TRUE
        raise invalid_field(name, "must be true or false")
    if isinstance(value, bool) and kind is not bool:
        raise invalid_field(name, f"must be {kind.__name__}")
    try:
        return kind(value)
    except (TypeError, ValueError):
        raise invalid_field(name, f"must be {getattr(kind, '__name__', kind)}, not {value!r}") from None
