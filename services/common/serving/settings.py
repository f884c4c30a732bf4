"""Settings of a service: TOML, then PACELINE_* variables, then flags, into one frozen dataclass."""

import argparse
import dataclasses
import difflib
import json
import os
import re
import sys
import tomllib
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from services.common.request.errors import PacelineError, invalid_field
from services.common.serving.settings_help import settings_of, usage

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
Choice = typing.Literal["auto", "true", "false"]
"""Of a setting that may be left to what a service finds."""
PREFIX = "PACELINE_"
GROUP = "group"
# Read by other parts of the system, so no service takes them for its own.
RESERVED = frozenset({"PACELINE_API_KEY", "PACELINE_PARENT", "PACELINE_SYNC_POINTS"})
NO_VALUE = "needs a value"
_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
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
    """Settings that the holder derives, and what it derives them from."""

    @property
    def free(self) -> tuple[str, ...]:
        """Settings that are passed on to the service."""
        names = (field.name for field in dataclasses.fields(self.of))
        return tuple(name for name in names if name not in self.own and name not in self.decided)


def load(
    cls: type[T],
    argv: Sequence[str],
    environ: Mapping[str, str] | None = None,
    check: Callable[[T], object] = lambda built: None,
    typed: Mapping[str, str] = types.MappingProxyType({}),
) -> T:
    """Builds cls from --config FILE, the environment and flags; the later of these wins.

    --help lists every setting. --print-config prints the result as JSON, even one that is refused, which it then says;
    values of fields with metadata secret are hidden. A field can be read from a file by appending "-file" to its flag
    or "_FILE" to its variable. check refuses what cls alone cannot judge by raising PacelineError or ValueError.
    A refusal says the flags of `typed` in the place of the settings that they gave.

    Raises:
        SystemExit: with code 0 after --help and --print-config; with 2 and one line for an unknown key or a bad value.
    """
    try:
        flags, asked = _flags(argv)
        if asked.help:
            print(help_text(cls), end="")
            raise SystemExit(0)
        given = (_toml(asked.config), _environment(os.environ if environ is None else environ), flags)
        chosen = _chosen(cls, {name: value for source in given for name, value in _renamed(cls, source)})
    except (PacelineError, ValueError, OSError, TypeError) as error:
        raise _refusal(cls, error, 2, typed) from None
    if asked.print_config:
        print(describe(cls, chosen))
    try:
        _require(cls, chosen)
        built = cls(**chosen)
        check(built)
    except (PacelineError, ValueError, OSError, TypeError) as error:
        raise _refusal(cls, error, 0 if asked.print_config else 2, typed) from None
    if asked.print_config:
        raise SystemExit(0)
    return built


def _refusal(cls: type["DataclassInstance"], error: Exception, code: int, typed: Mapping[str, str]) -> SystemExit:
    """Prints what is wrong and returns the exception that ends the process.

    A refusal of another service's setting begins with that service; who starts it may have given its own setting.
    """
    services = "|".join(groups(cls)) or "(?!)"
    found = re.match(rf"(?:({services})(?:: |\.))?(\w*)", str(error))
    place, service, name = (found[0], found[1], found[2]) if found else ("", None, "")
    shared = (f"{prefix}.{name}" for prefix, (_, group) in groups(cls).items() if name in group.own)
    said = next((typed[one] for one in (f"{service}.{name}", name, *shared) if one in typed), place)
    print(f"settings: {said}{str(error)[len(place) :]}", file=sys.stderr)
    return SystemExit(code)


def help_text(cls: type["DataclassInstance"]) -> str:
    """Every setting with its sentence and default, those that are passed on included."""
    passed_on = {prefix: settings_of(group.of, group.free) for prefix, (_, group) in groups(cls).items()}
    return usage(cls, own(cls), passed_on)


def describe(cls: type["DataclassInstance"], chosen: Mapping[str, Any]) -> str:
    """The chosen values, and the defaults of all others, as JSON; secrets are hidden, null is needed and missing."""
    return json.dumps(_shown(cls, {**_defaults(cls), **chosen}), indent=2)


def _defaults(cls: type["DataclassInstance"]) -> dict[str, Any]:
    fields = dataclasses.fields(cls)
    fixed = {field.name: None if field.default is dataclasses.MISSING else field.default for field in fields}
    made = {field.name: field.default_factory for field in fields if field.default_factory is not dataclasses.MISSING}
    return fixed | {name: make() for name, make in made.items()}


def _require(cls: type["DataclassInstance"], chosen: Mapping[str, Any]) -> None:
    """Names the first setting that is needed and missing, and says what it is; only then the source is read for it."""
    needed = own(cls) - chosen.keys()
    for field in dataclasses.fields(cls):
        if field.name in needed and field.default is dataclasses.MISSING is field.default_factory:
            (one,) = settings_of(cls, (field.name,))
            raise invalid_field(one.name, f"is needed ({one.flag}): {one.meaning} --help lists every setting.")


def _shown(cls: type["DataclassInstance"], values: Mapping[str, Any]) -> dict[str, Any]:
    secret = {field.name for field in dataclasses.fields(cls) if field.metadata.get("secret")}
    inner = {name: group.of for name, group in groups(cls).values()}
    shown = {name: "***" if name in secret and value else value for name, value in values.items()}
    return shown | {name: _shown(of, values[name]) for name, of in inner.items()}


def unknown(cls: type["DataclassInstance"], environ: Mapping[str, str]) -> set[str]:
    """Variables of ours in environ that cls does not take, for a process that starts services of several kinds."""
    inner = [
        f"{prefix}.{one.name}" for prefix, (_, group) in groups(cls).items() for one in dataclasses.fields(group.of)
    ]
    takes = {field.name for field in dataclasses.fields(cls)}.union(inner)
    named = {variable: key.removesuffix("_file") for variable in environ for key in _environment({variable: ""})}
    return {variable for variable, key in named.items() if key not in takes}


def _flags(argv: Sequence[str]) -> tuple[dict[str, Any], argparse.Namespace]:
    """The settings among the flags, and what is asked of the loader itself."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--config", default="")
    parser.add_argument("--print-config", action="store_true")
    parser.add_argument("-h", "--help", action="store_true")
    asked, rest = parser.parse_known_args(list(argv))
    values: dict[str, Any] = {}
    words = iter(rest)
    for word in words:
        if not word.startswith("--"):
            raise invalid_field(word, "flags start with --")
        name, equals, value = word[2:].partition("=")
        following = value if equals else next(words, None)
        if following is None or (not equals and following.startswith("--")):
            raise invalid_field(name.replace("-", "_"), NO_VALUE)
        values[name.replace("-", "_")] = following
    return values, asked


def _toml(path: str) -> dict[str, Any]:
    """The file with the names of tables before those of their settings, as flags have them."""
    values: dict[str, Any] = {}
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8")) if path else {}
    except (OSError, ValueError) as error:
        reason = "is not valid UTF-8" if isinstance(error, UnicodeDecodeError) else error
        told = getattr(error, "strerror", None) or f"{reason}; settings are written as TOML: name = value"
        raise invalid_field("--config", f"{path}: {told}") from error
    for name, value in tables.items():
        values |= {f"{name}.{key}": inner for key, inner in value.items()} if isinstance(value, dict) else {name: value}
    return values


def _environment(environ: Mapping[str, str]) -> dict[str, Any]:
    return {
        setting_of(name): value for name, value in environ.items() if name.startswith(PREFIX) and name not in RESERVED
    }


def setting_of(variable: str) -> str:
    """The setting that a variable gives: target.widths of PACELINE_TARGET__WIDTHS."""
    return variable.removeprefix(PREFIX).lower().replace("__", ".", 1)


def beforehand(config: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """What a file, if one is named, and the environment set, as it is written; the environment wins.

    Raises:
        PacelineError: the file cannot be read.
    """
    return {**_toml(config), **_environment(environ)}


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


def own(cls: type["DataclassInstance"]) -> set[str]:
    """Names of the settings that are not those of another service."""
    return {field.name for field in dataclasses.fields(cls) if GROUP not in field.metadata}


def _chosen(cls: type["DataclassInstance"], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values in the types of their fields; those of a group as one mapping."""
    known = groups(cls)
    chosen: dict[str, Any] = {}
    for key, value in values.items():
        prefix, _, name = key.partition(".")
        if not name:
            chosen.update([_setting(cls, key, value, key)])
        elif prefix not in known:
            raise _unknown(cls, key)
        else:
            field, group = known[prefix]
            setting, converted = _setting(group.of, name, value, key)
            if setting in group.decided:
                raise invalid_field(key, f"is derived from {group.decided[setting]}")
            chosen.setdefault(field, {})[setting] = converted
    return chosen


def _setting(cls: type["DataclassInstance"], name: str, value: Any, key: str) -> tuple[str, Any]:
    """One field of cls and its value; key is what errors name."""
    names = own(cls)
    if name not in names and name.endswith("_file") and name.removesuffix("_file") in names:
        name, value = name.removesuffix("_file"), Path(str(value)).read_text().strip()
    if name not in names:
        raise _unknown(cls, name, key)
    return name, _converted(key, value, typing.get_type_hints(cls)[name])


def _unknown(cls: type["DataclassInstance"], name: str, key: str = "") -> PacelineError:
    """Names a setting that there is not, and the one that is most alike."""
    key = key or name
    before = key.removesuffix(name)
    near = difflib.get_close_matches(name, own(cls), n=1)
    hint = f"did you mean --{(before + near[0]).replace('_', '-')}?" if near else "--help lists every setting"
    return invalid_field(key, f"there is no such setting; {hint}")


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
        raise invalid_field(name, f"must be {_KINDS.get(kind, kind.__name__)}")
    try:
        return kind(value)
    except (TypeError, ValueError):
        raise invalid_field(name, f"must be {_KINDS.get(kind, kind)}, not {value!r}") from None
