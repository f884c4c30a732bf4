"""Keys of config.json beside the sizes: keys that do not concern the arithmetic, and values that change nothing.

A key that is in neither table and is not read refuses the model: it might change the arithmetic.
"""

from collections.abc import Mapping
from typing import Any

_TRAINING = frozenset({
    "attention_dropout", "embd_pdrop", "gradient_checkpointing", "hidden_dropout", "initializer_range",
    "residual_dropout", "unsloth_fixed", "unsloth_version",
})  # fmt: skip
_TOKENS = frozenset({
    "bos_token_id", "decoder_start_token_id", "pad_token_id", "prefix", "sep_token_id", "tokenizer_class",
})  # fmt: skip
_GENERATION = frozenset({
    "bad_words_ids", "begin_suppress_tokens", "diversity_penalty", "do_sample", "early_stopping",
    "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "forced_bos_token_id", "forced_eos_token_id",
    "length_penalty", "max_length", "min_length", "min_p", "no_repeat_ngram_size", "num_beam_groups", "num_beams",
    "num_return_sequences", "remove_invalid_values", "repetition_penalty", "suppress_tokens", "temperature", "top_k",
    "top_p", "typical_p",
})  # fmt: skip
_LIBRARY = frozenset({
    "_attn_implementation", "_attn_implementation_autoset", "_name_or_path", "architectures", "attn_implementation",
    "auto_map", "base_model_ep_plan", "base_model_pp_plan", "base_model_tp_plan", "chunk_size_feed_forward", "dtype",
    "finetuning_task", "id2label", "ignore_keys_at_rope_validation", "label2id", "model_name", "model_type",
    "name_or_path", "output_attentions", "output_hidden_states", "output_scores", "problem_type",
    "return_dict", "return_dict_in_generate", "task_specific_params", "tf_legacy_loss", "tie_encoder_decoder",
    "torch_dtype", "torchscript", "transformers.js_config", "transformers_version", "use_bfloat16", "use_cache",
})  # fmt: skip
_UNUSED = frozenset({
    "max_window_layers", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings", "num_target_layers",
    "original_max_position_embeddings", "sliding_window",
})  # fmt: skip

IGNORED = _TRAINING | _TOKENS | _GENERATION | _LIBRARY | _UNUSED

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "add_cross_attention": (False, None),
    "attention_bias": (False, None),
    "cross_attention_hidden_size": (None,),
    "hidden_act": ("silu",),
    "is_causal": (False, None),
    "is_decoder": (False, True, None),
    "is_encoder_decoder": (False, None),
    "mlp_bias": (False, None),
    "partial_rotary_factor": (1, 1.0, None),
    "pretraining_tp": (1, None),
    "pruned_heads": ({}, None),
    "use_sliding_window": (False, None),
}
NEUTRAL_DFLASH: Mapping[str, tuple[Any, ...]] = {
    "attention_sink_bias": (False, None),
    "attention_value_scale": (None, 1, 1.0),
    "conv_kernel_size": (None, 0),
    "projector_type": (None, "linear"),
    "selector_rank": (None, 0),
    "swa_window_size": (None,),
    "use_aux_hidden_state": (True, None),
    "use_swa": (False, None),
}
TENSORS_IGNORED = ("rotary_emb.inv_freq",)
"""Ends of names of tensors that older files carry: tables of frequencies, which follow from config.json."""
