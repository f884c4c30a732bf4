"""Settings of a service: TOML, then PACELINE_* variables, then flags, into one frozen dataclass."""

import argparse
import dataclasses
import json
import os
import sys
import tomllib
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from services.common.request.errors import PacelineError, invalid_field

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
PREFIX = "PACELINE_"
GROUP = "group"
# Read by other parts of the system, so no service takes them for its own.
RESERVED = frozenset({"PACELINE_SYNC_POINTS"})
_TRUE, _FALSE = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})


@dataclasses.dataclass(frozen=True)
class Group:
    """Settings of another service, passed on to it: --target.widths, PACELINE_TARGET__WIDTHS, [target] in the file.

    They become a mapping in the field whose metadata holds the Group under GROUP.
    """

    prefix: str
    of: type["DataclassInstance"]
    own: Mapping[str, str]
    """Settings of the service that the holder has itself, and their names there."""
    decided: Mapping[str, str]
    """Settings that the holder derives, and from what."""

    @property
    def free(self) -> tuple[str, ...]:
        """Settings that are passed on."""
        names = (field.name for field in dataclasses.fields(self.of))
        return tuple(name for name in names if name not in self.own and name not in self.decided)


def load(
    cls: type[T],
    argv: Sequence[str],
    environ: Mapping[str, str] | None = None,
    check: Callable[[T], object] = lambda built: None,
) -> T:
    """Builds cls from --config FILE, the environment and flags; the later of these wins.

    --print-config prints the result as JSON and exits; values of fields with metadata secret are hidden. A field can be
    read from a file by appending "-file" to its flag or "_FILE" to its variable. check refuses what cls alone cannot
    judge by raising PacelineError or ValueError.

    Raises:
        SystemExit: with code 2 and one line, for an unknown key or a bad value.
    """
    try:
        flags, config, show = _flags(argv)
        given = (_toml(config), _environment(os.environ if environ is None else environ), flags)
        built = _build(cls, {name: value for source in given for name, value in _renamed(cls, source)})
        check(built)
    except (PacelineError, ValueError, OSError, TypeError) as error:
        print(f"settings: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    if show:
        print(describe(built))
        raise SystemExit(0)
    return built


def describe(settings: "DataclassInstance") -> str:
    """The settings as JSON; secrets are hidden."""
    return json.dumps(_shown(type(settings), dataclasses.asdict(settings)), indent=2)


def _shown(cls: type["DataclassInstance"], values: Mapping[str, Any]) -> dict[str, Any]:
    secret = {field.name for field in dataclasses.fields(cls) if field.metadata.get("secret")}
    inner = {name: group.of for name, group in groups(cls).values()}
    shown = {name: "***" if name in secret and value else value for name, value in values.items()}
    return shown | {name: _shown(of, values[name]) for name, of in inner.items()}


def unknown(cls: type["DataclassInstance"], environ: Mapping[str, str]) -> set[str]:
    """Variables of ours in environ that cls does not take, for who starts services of several kinds."""
    inner = [
        f"{prefix}.{one.name}" for prefix, (_, group) in groups(cls).items() for one in dataclasses.fields(group.of)
    ]
    takes = {field.name for field in dataclasses.fields(cls)}.union(inner)
    named = {variable: key.removesuffix("_file") for variable in environ for key in _environment({variable: ""})}
    return {variable for variable, key in named.items() if key not in takes}


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
    """The file with the names of tables before those of their settings, as flags have them."""
    values: dict[str, Any] = {}
    for name, value in (tomllib.loads(Path(path).read_text()) if path else {}).items():
        values |= {f"{name}.{key}": inner for key, inner in value.items()} if isinstance(value, dict) else {name: value}
    return values


def _environment(environ: Mapping[str, str]) -> dict[str, Any]:
    return {
        name.removeprefix(PREFIX).lower().replace("__", ".", 1): value
        for name, value in environ.items()
        if name.startswith(PREFIX) and name not in RESERVED
    }


def groups(cls: type["DataclassInstance"]) -> dict[str, tuple[str, Group]]:
    """The groups of cls and the fields that hold them, by prefix."""
    held = [(field.name, field.metadata[GROUP]) for field in dataclasses.fields(cls) if GROUP in field.metadata]
    return {group.prefix: (name, group) for name, group in held}


def _renamed(cls: type["DataclassInstance"], values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The values of one source; what cls has itself under the name that it has there."""
    known = groups(cls)
    for key, value in values.items():
        prefix, _, name = key.partition(".")
        own = known[prefix][1].own if name and prefix in known else {}
        files = {f"{its}_file": f"{mine}_file" for its, mine in own.items()}
        yield own.get(name, files.get(name, key)), value


def _build(cls: type[T], values: Mapping[str, Any]) -> T:
    known = groups(cls)
    chosen: dict[str, Any] = {}
    for key, value in values.items():
        prefix, _, name = key.partition(".")
        if not name:
            chosen.update([_setting(cls, key, value, key)])
        elif prefix not in known:
            raise invalid_field(key, f"unknown setting of {cls.__name__}")
        else:
            field, group = known[prefix]
            setting, converted = _setting(group.of, name, value, key)
            if setting in group.decided:
                raise invalid_field(key, f"is derived from {group.decided[setting]}")
            chosen.setdefault(field, {})[setting] = converted
    return cls(**chosen)


def _setting(cls: type["DataclassInstance"], name: str, value: Any, key: str) -> tuple[str, Any]:
    """One field of cls and its value; key is what errors name."""
    names = {field.name for field in dataclasses.fields(cls) if GROUP not in field.metadata}
    if name not in names and name.endswith("_file") and name.removesuffix("_file") in names:
        name, value = name.removesuffix("_file"), Path(str(value)).read_text().strip()
    if name not in names:
        raise invalid_field(key, f"unknown setting of {cls.__name__}")
    return name, _converted(key, value, typing.get_type_hints(cls)[name])


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
        value = str(value).lower() if isinstance(value, bool) else value
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
