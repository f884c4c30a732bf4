"""generation_config.json: the tokens that end a text, and the sampling that a model's makers recommend."""

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.common.model.fields.fields import Fields, read_object

GENERATION_FILE = "generation_config.json"
_SAMPLED = {"temperature": (0, 100), "top_k": (0, 1 << 31), "top_p": (0, 1), "min_p": (0, 1)}
_PENALTIES = {"repetition_penalty": (0, 100), "presence_penalty": (-100, 100), "frequency_penalty": (-100, 100)}
"""Sampling values that are read, with their lowest and highest valid value."""


@dataclass(frozen=True)
class Generation:
    """What the file says; `sampling` holds values by the names of request fields."""

    eos_token_ids: tuple[int, ...] = ()
    sampling: tuple[tuple[str, float], ...] = ()


def read_generation(folder: Path, vocab: int) -> Generation:
    """Read the file if there is one; other keys are ignored.

    Raises:
        ModelError: the file is malformed, or `eos_token_id` names no tokens.
    """
    path = folder / GENERATION_FILE
    if not path.exists():
        return Generation()
    values = read_object(path)
    return Generation(eos_token_ids(Fields(path, values), vocab), _sampling(values))


def eos_token_ids(fields: Fields, vocab: int) -> tuple[int, ...]:
    """Return `eos_token_id`, which is an id, a list of ids, null or absent.

    Raises:
        ModelError: an entry is no token id below `vocab`.
    """
    value = fields.take("eos_token_id", (int, list, type(None)), default=None)
    ids = value if isinstance(value, list) else [] if value is None else [value]
    return token_ids(fields, "eos_token_id", ids, vocab)


def token_ids(fields: Fields, name: str, ids: Sequence[Any], vocab: int) -> tuple[int, ...]:
    """Return the entries of a key that must be token ids.

    Raises:
        ModelError: an entry is none.
    """
    if any(type(token) is not int or not 0 <= token < vocab for token in ids):
        raise fields.error(name, f"{reprlib.repr(ids)} are not token ids below vocab_size {vocab}")
    return tuple(ids)


def _sampling(values: dict[str, Any]) -> tuple[tuple[str, float], ...]:
    """Return the values that are stated and valid; `do_sample: false` means temperature 0 and cancels the others."""
    greedy = values.get("do_sample") is False
    said = values | {"temperature": 0.0} if greedy else values
    ranges = {"temperature": (0, 0)} | _PENALTIES if greedy else _SAMPLED | _PENALTIES
    return tuple(
        (name, float(said[name]))
        for name, (least, most) in ranges.items()
        if type(said.get(name)) in (int, float) and least <= said[name] <= most
    )
