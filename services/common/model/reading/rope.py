"""Reads the rotary part of config.json, in its old and its new form: theta, and how frequencies are stretched."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from services.common.kernels.rope.frequencies import Linear, Llama3, Proportional, Scaling, Yarn, attention_factor
from services.common.model.fields.fields import Fields
from services.common.model.spec import Rope

_THETA = 10000.0
_MOST_POSITIONS = 1 << 22
"""Tables of more would take gigabytes; no published model has them."""
_SHARE = "partial_rotary_factor"
_OF_IMAGES = frozenset({"mrope_interleaved", "mrope_section"})
"""How pairs are dealt to a place's height and width in an image: in text all three positions are one."""


def read_rope(fields: Fields, head_dim: int, share: float | None = None) -> tuple[Rope, int]:
    """Read `rope_theta` and the object in `rope_scaling` or `rope_parameters`; return also the positions meant for.

    Only a part of each head may turn in a family that has a usual `share` for it. YaRN means `factor` times the
    original length, also where `max_position_embeddings` was left as it was.

    Raises:
        ModelError: a kind that is not implemented, a contradiction, or a value without a meaning.
    """
    positions = fields.positive("max_position_embeddings", most=_MOST_POSITIONS)
    inner = _object(fields)
    scaling = _scaling(fields, inner, positions)
    theta = inner.number("rope_theta", default=fields.number("rope_theta", default=_THETA))
    if fields.number("rope_theta", default=theta) != theta:
        raise fields.error("rope_theta", f"differs from {inner.prefix}rope_theta")
    if theta <= 1:
        raise fields.error("rope_theta", f"must be above 1, is {theta}")
    turning = None if share is None else _turning(fields, inner, head_dim, share)
    if turning is not None and scaling is not None:
        raise inner.error("rope_type", "a scaling of heads that turn in part is not supported")
    inner.neutral(_SHARE, (1, 1.0, None))
    inner.finish(_OF_IMAGES)
    if isinstance(scaling, Yarn):
        positions = max(positions, int(min(scaling.factor * scaling.original_positions, _MOST_POSITIONS + 1)))
        if positions > _MOST_POSITIONS:
            raise inner.error("factor", f"makes more than {_MOST_POSITIONS} positions")
    return Rope(theta, scaling, turning), positions


def read_positions(fields: Fields) -> int:
    """Return how many positions the model is meant for."""
    return fields.positive("max_position_embeddings", most=_MOST_POSITIONS)


def read_rope_part(inner: Fields, positions: int, head_dim: int, theta: float | None = None) -> Rope:
    """Read an object that says all of one rotary table, for `positions` and heads; `theta` is the usual one.

    Raises:
        ModelError: a kind that is not implemented, or a value without a meaning.
    """
    kind = inner.take("rope_type", (str, type(None)), default=None) or inner.take("type", (str,), default="default")
    inner.neutral("type", (kind, None))
    read = _ALL_KINDS.get(kind)
    if read is None and kind != "default":
        raise inner.error("rope_type", f"{kind!r} is not supported, only {['default', *_ALL_KINDS]}")
    base = inner.number("rope_theta", **({} if theta is None else {"default": theta}))
    if base <= 1:
        raise inner.error("rope_theta", f"must be above 1, is {base}")
    scaling = None if read is None else read(inner, _original(inner, positions))
    turning = _turning(inner, inner, head_dim, 1.0)
    if isinstance(scaling, Proportional):
        scaling, turning = replace(scaling, pairs=(turning or head_dim) // 2), None
    inner.finish(frozenset())
    return Rope(base, scaling, turning)


def _original(inner: Fields, positions: int) -> int:
    return inner.positive("original_max_position_embeddings", default=positions, most=_MOST_POSITIONS)


def _turning(fields: Fields, inner: Fields, head_dim: int, usual: float) -> int | None:
    """Return how many dimensions of a head turn; None for all."""
    share = inner.number(_SHARE, default=fields.number(_SHARE, default=usual))
    turning = int(head_dim * share) if share <= 1 else 0
    if turning < 2 or turning % 2:
        raise inner.error(_SHARE, f"{share} of {head_dim} dimensions is not supported")
    return None if turning == head_dim else turning


def _object(fields: Fields) -> Fields:
    """Return the one of the two that says anything."""
    old, new = fields.nested("rope_scaling"), fields.nested("rope_parameters")
    if old and new and not old.equals(new):
        raise fields.error("rope_scaling", "differs from rope_parameters")
    return old or new


def _scaling(fields: Fields, inner: Fields, positions: int) -> Scaling | None:
    kind, older = (inner.take(name, (str, type(None)), default=None) for name in ("rope_type", "type"))
    if kind and older and kind != older:
        raise inner.error("rope_type", "differs from type")
    kind = kind or older or "default"
    if kind == "default":
        return None
    if kind not in _KINDS:
        raise inner.error("rope_type", f"{kind!r} is not supported, only {['default', *_KINDS]}")
    original = fields.positive(
        "original_max_position_embeddings", default=_original(inner, positions), most=_MOST_POSITIONS
    )
    return _KINDS[kind](inner, original)


def _yarn(inner: Fields, original: int) -> Yarn:
    factor = inner.number("factor")
    given = inner.optional_number("attention_factor")
    mscale, mscale_all_dim = inner.optional_number("mscale"), inner.optional_number("mscale_all_dim")
    return Yarn(
        factor=factor,
        original_positions=original,
        attention_factor=attention_factor(factor, mscale, mscale_all_dim) if given is None else given,
        beta_fast=inner.number("beta_fast", default=32.0),
        beta_slow=inner.number("beta_slow", default=1.0),
        truncate=inner.take("truncate", (bool,), default=True),
    )


def _llama3(inner: Fields, original: int) -> Llama3:
    low, high = inner.number("low_freq_factor"), inner.number("high_freq_factor")
    if high <= low:
        raise inner.error("high_freq_factor", f"must be above low_freq_factor {low}, is {high}")
    return Llama3(inner.number("factor"), original, low, high)


def _linear(inner: Fields, original: int) -> Linear:
    return Linear(inner.number("factor"))


_KINDS: Mapping[str, Callable[[Fields, int], Scaling]] = {"llama3": _llama3, "yarn": _yarn}


def _proportional(inner: Fields, original: int) -> Proportional:
    return Proportional(0, inner.number("factor", default=1.0))


_ALL_KINDS = {**_KINDS, "linear": _linear, "proportional": _proportional}
"""Those of objects that say all of a table, which older families do not have."""
