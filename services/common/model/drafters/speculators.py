"""Files of the speculators library, told as z-lab tells: one more layer of keys, and layers counted otherwise."""

from pathlib import Path
from typing import Any

from services.common.model.fields.fields import Fields, read_object
from services.common.model.fields.known_keys import IGNORED
from services.common.model.files.checkpoint import CONFIG_FILE

TYPE = "speculators_model_type"
_LAYERS = "transformer_layer_config"
_TAPS = "aux_hidden_state_layer_ids"
_SAME = (
    "block_size", "draft_vocab_size", "enable_confidence_head", "confidence_head_with_markov", "layer_types",
    "markov_head_type", "markov_rank", "mask_token_id", "max_window_layers", "sliding_window", "use_sliding_window",
)  # fmt: skip
"""Keys that mean the same beside the layers' own, and replace those."""
_INNER = ("conv_group_size", "conv_kernel_size", "selector_rank", "selector_top_k", "projector_type")
"""Those that z-lab keeps in `dflash_config`; any projector but its own is refused there."""
_TRAINING = frozenset({
    "architectures", "auf", "auto_map", "ce_loss_alpha", "confidence_head_alpha", "dtype", "emb_dim",
    "gru_hidden_dim", "has_no_defaults_at_init", "l1_loss_alpha", "lambda_base_decay_ratio", "lambda_base_start",
    "loss_decay_gamma", "max_anchors", "num_anchors", "pure_draft_prefix_len", "speculators_config",
    "speculators_version", "torch_dtype", "transformers_version", TYPE,
})  # fmt: skip
"""Keys that change nothing that is computed here."""
_KEPT_BY_LAYERS = frozenset({"architectures", "num_target_layers"})


def kind_of(folder: Path) -> str | None:
    """Return the type that a file of the library names; None for any other file.

    Raises:
        ModelError: config.json is missing or malformed, or the type is no text.
    """
    fields = Fields(folder / CONFIG_FILE, read_object(folder / CONFIG_FILE))
    kind: str | None = fields.take(TYPE, (str, type(None)), default=None)
    return kind


def translated(folder: Path) -> Fields:
    """Return the keys as z-lab's layouts have them. How many layers the target has stays unknown.

    Raises:
        ModelError: a key is malformed, or is not understood.
    """
    path = folder / CONFIG_FILE
    outer = Fields(path, read_object(path))
    layers = outer.take(_LAYERS, (dict,))
    values: dict[str, Any] = {name: value for name, value in layers.items() if name not in _KEPT_BY_LAYERS}
    values |= {name: value for name in _SAME if (value := outer.take(name, _ANY, default=None)) is not None}
    inner = {name: value for name in _INNER if (value := outer.take(name, _ANY, default=None)) is not None}
    if inner.get("projector_type") == "dflash":
        del inner["projector_type"]
    if outer.take("shift_label", (bool, type(None)), default=None):
        raise outer.error("shift_label", "true is not supported")
    outer.neutral("target_hidden_size", (None, layers.get("hidden_size")))
    outer.neutral("use_aux_hidden_state", (True, None))
    if outer.take("sliding_window_non_causal", (bool, type(None)), default=None):
        values["is_causal"] = False
    values["sample_from_anchor"] = outer.take("sample_from_anchor", (bool, type(None)), default=None) or False
    values["target_layer_ids"] = _taps(outer)
    values["tie_word_embeddings"] = bool(outer.take("tie_word_embeddings", (bool, type(None)), default=None))
    outer.finish(_TRAINING | IGNORED)
    return Fields(path, values | {"dflash_config": inner})


_ANY = (bool, int, float, str, list, dict, type(None))


def _taps(outer: Fields) -> list[int]:
    """Layers are counted from the embedding, whose output is number 0."""
    ids = outer.take(_TAPS, (list,))
    if not ids or any(type(one) is not int or one < 1 for one in ids):
        raise outer.error(_TAPS, f"must be numbers of layers from 1 on, is {ids[:8]}")
    return [one - 1 for one in ids]
