"""Reads what families with sliding windows share of config.json: which layers slide, and each kind's rotary table."""

import reprlib
from collections.abc import Mapping
from types import MappingProxyType

from services.common.model.fields.fields import Fields
from services.common.model.reading.reading import FULL, MOST_LAYERS, SLIDING
from services.common.model.reading.rope import read_rope_part
from services.common.model.spec import Rope

_PATTERNS = "sliding_window_pattern", "_sliding_window_pattern"
_MOST_WINDOW = 1 << 22
"""More positions than any model has."""


def read_kinds(fields: Fields, every: int) -> list[str]:
    """Return `full_attention` or `sliding_attention` for each layer; without a list every `every`th is full.

    Raises:
        ModelError: a list of another length, or with other kinds.
    """
    count = fields.positive("num_hidden_layers", most=MOST_LAYERS)
    for name in _PATTERNS:
        every = fields.positive(name, default=every)
    names = fields.take("layer_types", (list, type(None)), default=None)
    if names is None:
        names = [SLIDING if (index + 1) % every else FULL for index in range(count)]
    if len(names) != count or any(name not in (FULL, SLIDING) for name in names):
        raise fields.error("layer_types", f"must be {count} of {[FULL, SLIDING]}, is {reprlib.repr(names)}")
    return list(names)


def read_window(fields: Fields) -> int:
    """Return how many of the last tokens a row of a sliding layer sees, its own included.

    Raises:
        ModelError: there is none.
    """
    return fields.positive("sliding_window", most=_MOST_WINDOW)


def read_ropes(
    fields: Fields, positions: int, head_dims: Mapping[str, int], thetas: Mapping[str, float] = MappingProxyType({})
) -> Mapping[str, Rope]:
    """Return the rotary table of each kind of layer, of which `rope_parameters` has an object.

    `head_dims` are the sizes of heads of each kind, `thetas` what an object without one has.

    Raises:
        ModelError: a kind of table that is not implemented, or a value without a meaning.
    """
    both = fields.nested("rope_parameters")
    # Some files repeat here what the object of the layers without a window says.
    both.take("original_max_position_embeddings", (int, type(None)), default=None)
    ropes = {
        kind: read_rope_part(both.nested(kind), positions, head_dim, thetas.get(kind))
        for kind, head_dim in head_dims.items()
    }
    both.finish(frozenset())
    return ropes
