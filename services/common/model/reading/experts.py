"""Reads what families with experts share of config.json: which layers have them, and how a row's are chosen."""

import reprlib

from services.common.model.fields.fields import Fields
from services.common.model.spec import Dense, Experts

_TRAINING = ("output_router_logits", "router_aux_loss_coef")
"""Keys of a loss that balances experts."""
_SIZES = ("moe_intermediate_size", "norm_topk_prob", "num_experts_per_tok", "shared_expert_intermediate_size")
"""Keys that say nothing where no layer has experts."""
_MOST_EXPERTS = 4096
"""More would be a mistake, and take minutes to be compared with the file's tensors."""


def read_experts(
    fields: Fields, count: int, *, renorm: tuple[bool, ...] = (False, True), shared: bool = False
) -> tuple[Dense | Experts, ...]:
    """Return the feed-forward parts of so many layers, some of which may be dense.

    `renorm` are the values of `norm_topk_prob` that the architecture has, its default first; with `shared` every row
    takes one more expert.

    Raises:
        ModelError: a size is missing or inconsistent, or a key asks for what is not implemented.
    """
    for name in _TRAINING:
        fields.take(name, (int, float, bool, type(None)), default=None)
    which = _with_experts(fields, count, _expert_count(fields))
    experts = _experts(fields, renorm, shared) if any(which) else None
    for name in () if experts else _SIZES:
        fields.take(name, (int, bool, type(None)), default=None)
    dense = None if all(which) else Dense(fields.positive("intermediate_size"))
    fields.take("intermediate_size", (int, type(None)), default=None)
    return tuple(part for has in which if (part := experts if has else dense) is not None)


def _expert_count(fields: Fields) -> int:
    """Return the number of experts, which has two names; a file may say both."""
    given = [fields.take(name, (int, type(None)), default=None) for name in ("num_experts", "num_local_experts")]
    counts = {value for value in given if value is not None}
    if not counts:
        raise fields.error("num_experts", "is missing")
    if len(counts) > 1 or not 0 <= min(counts) <= _MOST_EXPERTS:
        raise fields.error("num_experts", f"must be in [0, {_MOST_EXPERTS}], is {reprlib.repr(sorted(counts))}")
    return int(counts.pop())


def _with_experts(fields: Fields, count: int, experts: int) -> list[bool]:
    """Return which layers have experts: every `decoder_sparse_step`th, without those of `mlp_only_layers`."""
    step = fields.positive("decoder_sparse_step", default=1)
    plain = fields.take("mlp_only_layers", (list, type(None)), default=None) or []
    if any(type(index) is not int or not 0 <= index < count for index in plain):
        raise fields.error("mlp_only_layers", f"must be layers below {count}, is {reprlib.repr(plain)}")
    return [experts > 0 and (index + 1) % step == 0 and index not in plain for index in range(count)]


def _experts(fields: Fields, renorm: tuple[bool, ...], shared: bool) -> Experts:
    count, top_k = _expert_count(fields), fields.positive("num_experts_per_tok")
    if top_k > count:
        raise fields.error("num_experts_per_tok", f"must be at most num_experts {count}, is {top_k}")
    if not shared and fields.take("shared_expert_intermediate_size", (int, type(None)), default=None):
        raise fields.error("shared_expert_intermediate_size", "this architecture has no shared expert: must be 0")
    normed = fields.take("norm_topk_prob", (bool,), default=renorm[0])
    if normed not in renorm:
        raise fields.error("norm_topk_prob", f"{normed} is not supported: this architecture has {renorm[0]} alone")
    return Experts(
        count=count,
        top_k=top_k,
        inner=fields.positive("moe_intermediate_size"),
        renorm=normed,
        shared=fields.positive("shared_expert_intermediate_size") if shared else 0,
    )
