"""What the settings say of each model that a gateway serves."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from services.common.request.errors import invalid_field


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """One model: its public name, its tokenizer's folder, and what is stated for it alone.

    An empty name is that of whatever the first target serves.
    """

    name: str
    tokenizer: str
    aliases: tuple[str, ...]
    tool_parser: str
    generation_config: str


def listed(models: Sequence[str]) -> dict[str, str]:
    """Folders of tokenizers by the names of their models, out of entries NAME=FOLDER.

    Raises:
        PacelineError: an entry is no such pair, or a name stands twice.
    """
    found: dict[str, str] = {}
    for item in models:
        name, _, folder = item.partition("=")
        if not name or not folder:
            raise invalid_field("models", f"{item!r} is not NAME=FOLDER")
        if name in found:
            raise invalid_field("models", f"{name!r} stands twice")
        found[name] = folder
    return found


def chosen_by_model(field: str, text: str, names: Iterable[str]) -> Mapping[str, str]:
    """Values by model out of `VALUE` or `NAME=VALUE,NAME=VALUE`; the empty name has what holds for all others.

    Raises:
        PacelineError: a name is no model's, or stands twice.
    """
    known, found = {*names}, dict[str, str]()
    for item in filter(None, text.split(",")):
        name, equals, value = item.rpartition("=")
        if equals and name not in known:
            raise invalid_field(field, f"{name!r} is none of the models")
        if name in found:
            raise invalid_field(field, f"{item!r} is the second value of one model")
        found[name] = value
    return found


def aliases_by_model(entries: Sequence[str], names: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Aliases by model out of `ALIAS` for the only one, and `ALIAS=NAME`.

    Raises:
        PacelineError: it is left open whose an alias is, or it is a model's own name.
    """
    found: dict[str, tuple[str, ...]] = dict.fromkeys(names, ())
    for item in entries:
        alias, equals, name = item.partition("=")
        if equals and name not in found:
            raise invalid_field("model_aliases", f"{name!r} is none of the models")
        if not equals and len(names) > 1:
            raise invalid_field("model_aliases", f"{item!r} is not ALIAS=NAME, which several models need")
        name = name if equals else names[0]
        others = {known for other, its in found.items() if other != name for known in (other, *its)}
        if not alias or alias in others:
            raise invalid_field("model_aliases", f"{item!r}: the name is empty or another model's")
        found[name] = tuple(dict.fromkeys((*found[name], alias)))
    return found
