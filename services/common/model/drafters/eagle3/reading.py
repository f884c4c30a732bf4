"""Reads config.json of EAGLE-3 drafters in its three layouts: EAGLE's own, DeepSpec's and the speculators library's."""

import logging
import reprlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.common.model.drafters.spec import ChainSpec
from services.common.model.drafters.speculators import TYPE
from services.common.model.fields.fields import Fields, read_object
from services.common.model.fields.known_keys import IGNORED
from services.common.model.files.checkpoint import CONFIG_FILE
from services.common.model.reading.reading import MOST_LAYERS, finish, read_stack

_LOG = logging.getLogger(__name__)
EAGLE, DEEPSPEC, LIBRARY = "LlamaForCausalLMEagle3", "Qwen3Eagle3Model", "Eagle3Speculator"
ALIAS = "Eagle3LlamaForCausalLM"
"""What a server calls EAGLE's own class, and some makers of its files too."""
_PARALLEL = "drafts of all positions at once (P-EAGLE) are not supported: take an EAGLE-3 drafter of one token a step"
REFUSED = {
    "PEagleSpeculator": _PARALLEL,
    "PEagleDraftModel": _PARALLEL,
    "EagleLlamaForCausalLM": "EAGLE of the first and second generation is not supported: take an EAGLE-3 drafter",
    "LlamaForCausalLMEagle": "EAGLE of the first and second generation is not supported: take an EAGLE-3 drafter",
}
_TAPS, _OWN_TAPS, _INNER = "eagle_aux_hidden_state_layer_ids", "target_layer_ids", "eagle_config"
_USUAL = 3
"""Streams that a drafter reads whose file names none."""
_FLAGS = ("norm_before_fc", "norm_before_residual", "norm_output")
_QK_NORM = {"llama": False, "qwen3": True}
"""By the library's `model_type` of the layer."""
_TRAINING = frozenset({
    "architectures", "auto_map", "dtype", "embed_requires_grad", "enable_sp_ulysses", "has_no_defaults_at_init",
    "speculators_config", "speculators_version", "torch_dtype", "transformers_version", TYPE,
})  # fmt: skip
_HARMLESS = IGNORED | {"eos_token_id", "modal_type", "num_anchors", "target_model_type"}


@dataclass(frozen=True, kw_only=True)
class Eagle3Spec(ChainSpec):
    """It reads so many streams of the target as `features`.

    They are normalised before their product with `norm_before_fc`. The residual stream begins with the normalised state
    with `norm_before_residual`, and steps pass on normalised states with `norm_output`.
    """

    features: int
    norm_before_fc: bool = False
    norm_before_residual: bool = False
    norm_output: bool = False


def read_spec(fields: Fields) -> Eagle3Spec:
    """Read config.json as EAGLE or DeepSpec write it, or as `translated` gives it.

    Raises:
        ModelError: a key is malformed, inconsistent, or asks for what is not implemented.
    """
    (name, *_) = fields.take("architectures", (list,))
    inner = fields.nested(_INNER)
    if (count := fields.positive("num_hidden_layers", most=MOST_LAYERS)) != 1:
        raise fields.error("num_hidden_layers", f"only one is supported, is {count}: take a drafter of one layer")
    model_type = fields.take("model_type", (str, type(None)), default=None)
    if name == LIBRARY and model_type not in _QK_NORM:
        raise fields.error("model_type", f"{model_type!r} is not supported, only {sorted(_QK_NORM)}")
    qk_norm = _QK_NORM[model_type] if name == LIBRARY else name == DEEPSPEC
    bias = bool(fields.take("attention_bias", (bool, type(None)), default=None))
    flags: dict[str, Any] = {flag: bool(fields.take(flag, (bool, type(None)), default=None)) for flag in _FLAGS}
    taps = _own_taps(fields) if name == DEEPSPEC else _taps(fields, inner)
    stack = read_stack(fields, bias=bias, qk_norm=qk_norm)
    size = fields.positive("draft_vocab_size", default=stack.vocab_size, most=stack.vocab_size)
    fields.neutral("truncated_vocab_size", (None, size))
    tied = fields.take("tie_word_embeddings", (bool,), default=False)
    _refuse(fields, inner, stack.hidden_size)
    return Eagle3Spec(
        **vars(stack),
        **flags,
        raw=True,
        target_layer_ids=taps,
        features=len(taps) or _USUAL,
        num_target_layers=fields.take("num_target_layers", (int, type(None)), default=None) or 0,
        draft_vocab=0 if size == stack.vocab_size else size,
        tied=tied and size == stack.vocab_size,
    )


def translated(folder: Path) -> Fields:
    """Return the keys of the library's file as EAGLE's stand.

    Raises:
        ModelError: a key is malformed, or is not understood.
    """
    path = folder / CONFIG_FILE
    outer = Fields(path, read_object(path))
    values: dict[str, Any] = dict(outer.take("transformer_layer_config", (dict,))) | {"architectures": [LIBRARY]}
    kept = ("draft_vocab_size", "fc_norm", "target_hidden_size", "use_aux_hidden_state", _TAPS, *_FLAGS)
    values |= {name: value for name in kept if (value := outer.take(name, _ANY, default=None)) is not None}
    if "norm_before_residual" not in values:
        _LOG.info("%s: norm_before_residual is missing: false, as the library has it", path)
    outer.take("inference_type", (str, type(None)), default=None)  # text, or images beside it
    values["tie_word_embeddings"] = bool(outer.take("tie_word_embeddings", (bool, type(None)), default=None))
    outer.finish(_TRAINING | IGNORED)
    return Fields(path, values)


_ANY = (bool, int, float, str, list, dict, type(None))


def _taps(fields: Fields, inner: Fields) -> tuple[int, ...]:
    """The layers before which streams are read, of which 0 is the embedding; none where the file names none."""
    holder = inner if inner.take(_TAPS, (list, type(None)), default=None) is not None else fields
    ids = holder.take(_TAPS, (list, type(None)), default=None)
    if ids is None:
        return ()
    if not ids and holder is inner:
        return ()  # so a maker of files writes that it kept to the usual ones
    if not ids or any(type(one) is not int or not 1 <= one <= MOST_LAYERS for one in ids):
        raise holder.error(_TAPS, f"must be numbers of layers from 1 on, is {reprlib.repr(ids)}")
    return tuple(one - 1 for one in ids)


def _own_taps(fields: Fields) -> tuple[int, ...]:
    ids = fields.take(_OWN_TAPS, (list,))
    if not ids or any(type(one) is not int or not 0 <= one < MOST_LAYERS for one in ids):
        raise fields.error(_OWN_TAPS, f"must be numbers of layers from 0 on, is {reprlib.repr(ids)}")
    return tuple(ids)


def _refuse(fields: Fields, inner: Fields, hidden: int) -> None:
    """Refuse what asks for other arithmetic, and every key that was not read."""
    for holder in (fields, inner):
        holder.neutral("use_aux_hidden_state", (True, None))
    for name, allowed in (("use_input_layernorm_in_first_layer", (True, None)), ("use_last_layernorm", (True, None)),
                          ("use_mtp_layernorm", (False, None)), ("parallel_drafting", (False, None)),
                          ("next_layer_regular", (True, None))):  # fmt: skip
        inner.neutral(name, allowed)
    if (steps := inner.take("parallel_draft_step", (int, type(None)), default=None)) not in (None, 0, 1):
        raise inner.error("parallel_draft_step", f"{steps}: {_PARALLEL}")
    inner.take("parallel_draft_heads_num_layers", (int, type(None)), default=None)
    fields.neutral("fc_norm", (False, None))
    fields.neutral("parallel_drafting", (False, None))
    fields.neutral("target_hidden_size", (None, hidden))
    inner.finish(frozenset())
    finish(fields, _HARMLESS)
