"""Reads what a settings class says of its fields: the sentence below each, and the comment above its group.

The sentences are read from the source of the class, as editors and documentation tools read them.
"""

import ast
import dataclasses
import inspect
import itertools
import json
import textwrap
import types
import typing
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_UNITS = {"_s": "SECONDS", "_bytes": "BYTES", "_tokens": "TOKENS"}
_KINDS = {str: "TEXT", int: "NUMBER", float: "NUMBER", bool: "true|false"}
_WIDTH = 100
EMPTY = "empty"


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One field as people read it; ``default`` is empty where a value is needed, ``kind`` tells type or unit."""

    name: str
    group: str
    kind: str
    default: str
    meaning: str

    @property
    def flag(self) -> str:
        """As it is given on a command line."""
        return f"--{self.name.replace('_', '-')}"


def settings_of(cls: "type[DataclassInstance]", names: Collection[str] = ()) -> tuple[Setting, ...]:
    """The fields in their order; ``names`` picks some."""
    hints, said, headings = typing.get_type_hints(cls), sentences(cls), _headings(cls)
    return tuple(
        Setting(
            field.name,
            headings[field.name],
            _kind(field.name, hints[field.name]),
            _default(field),
            said.get(field.name, ""),
        )
        for field in dataclasses.fields(cls)
        if not names or field.name in names
    )


def sentences(cls: type) -> dict[str, str]:
    """What stands below each field that has a sentence."""
    body = _body(cls)
    return {
        field.target.id: " ".join(inspect.cleandoc(below.value.value).split())
        for field, below in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str)
    }


def _headings(cls: type) -> dict[str, str]:
    """The comment above the group of each field; empty before the first one."""
    lines, heading, found = _source(cls).splitlines(), "", {}
    fields = {
        node.lineno: node.target.id
        for node in _body(cls)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    for number, line in enumerate(lines, start=1):
        if line.startswith("    # "):
            heading = line.removeprefix("    # ")
        if number in fields:
            found[fields[number]] = heading
    return found


def _source(cls: type) -> str:
    return textwrap.dedent(inspect.getsource(cls))


def _body(cls: type) -> list[ast.stmt]:
    (node,) = ast.parse(_source(cls)).body
    assert isinstance(node, ast.ClassDef)
    return node.body


def _kind(name: str, hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _kind(name, next(one for one in arguments if one is not type(None)))
    if origin is typing.Literal:
        return "|".join(map(str, arguments))
    if origin is tuple:
        return f"{_KINDS[arguments[0]]},..."
    unit = next((unit for suffix, unit in _UNITS.items() if name.endswith(suffix)), "")
    return unit if unit and hint in (int, float) else _KINDS.get(hint, "TEXT")


def _default(field: "dataclasses.Field[Any]") -> str:
    if field.default is dataclasses.MISSING:
        return ""
    if field.default in ("", (), None):
        return EMPTY
    if isinstance(field.default, tuple):
        return ",".join(map(str, field.default))
    return field.default if isinstance(field.default, str) else json.dumps(field.default)


def usage(cls: "type[DataclassInstance]", own: Collection[str], passed_on: Mapping[str, Iterable[Setting]]) -> str:
    """The help of a service: its ``own`` settings in their groups, then those that it passes on, by prefix."""
    name = cls.__module__.rpartition(".")[0]
    head = f"""
        usage: python -m {name} [--config FILE] [--print-config] [--SETTING VALUE]...

        {(cls.__doc__ or "").splitlines()[0]}

        A setting is read from FILE (TOML), then from the environment (PACELINE_LOG_LEVEL for --log-level), then from
        its flag; the last one counts. --SETTING-file PATH takes the value from a file. --print-config shows all that
        was chosen, as JSON. Defaults are in brackets.
    """
    parts = [inspect.cleandoc(head), *listed(settings_of(cls, own), "")]
    for prefix, settings in passed_on.items():
        parts.append(
            f"Passed on to every {prefix} (PACELINE_{prefix.upper()}__SETTING, or the table [{prefix}] of FILE)"
        )
        parts += listed(settings, f"{prefix}.")
    return "\n\n".join(parts) + "\n"


def listed(settings: Iterable[Setting], prefix: str) -> list[str]:
    """A block of text for each group; `prefix` stands before the names."""
    blocks: dict[str, list[str]] = {}
    for one in settings:
        default = f"[{one.default}]" if one.default else "(needed)"
        lines = textwrap.wrap(one.meaning, _WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 8)
        flag = f"  --{prefix}{one.flag[2:]} {one.kind}  {default}"
        blocks.setdefault(one.group, []).append("\n".join([flag, *lines]))
    return ["\n".join([f"{group}:" if group else "Settings:", *lines]) for group, lines in blocks.items()]
