"""Types of the kernels' arguments, by their names."""

MODEL_POINTERS = frozenset(
    [
        "x_ptr",
        "residual_ptr",
        "weight_ptr",
        "out_ptr",
        "total_ptr",
        "gate_up_ptr",
        "q_ptr",
        "kv_ptr",
        "block_k_ptr",
        "block_v_ptr",
        "mixed_ptr",
        "stream_ptr",
        "norm_ptr",
        "bias_ptr",
        "scaled_ptr",
    ]
)
WORDS = frozenset(
    [
        "ids_ptr",
        "slots_ptr",
        "lengths_ptr",
        "valid_ptr",
        "positions_ptr",
        "squares_ptr",
        "added_ptr",
        "ancestors_ptr",
        "reach_ptr",
        "tags_ptr",
        "epochs_ptr",
        "expected_ptr",
        "drafts_ptr",
        "length_ptr",
        "generated_ptr",
        "min_tokens_ptr",
        "draft_limit_ptr",
        "stops_ptr",
        "top_k_ptr",
        "seed_ptr",
        "anchor_ptr",
        "max_tokens_ptr",
        "limit_ptr",
        "count_ptr",
        "accepted_ptr",
        "drafted_ptr",
        "end_ptr",
        "anchors_ptr",
        "stamp_ptr",
        "mapped_length_ptr",
        "mapped_anchor_ptr",
        "mapped_end_ptr",
        "walked_ptr",
        "parents_ptr",
        "depths_ptr",
        "path_ptr",
        "map_ptr",
    ]
)
HALF_WORDS = frozenset(
    [
        *("table_ptr", "tables_ptr", "rows_ptr", "mapped_rows_ptr", "counts_ptr", "choices_ptr", "history_ptr"),
        *("masks_ptr", "lineage_ptr", "mailbox_parents_ptr", "offsets_ptr", "firsts_ptr", "takes_ptr"),
    ]
)
BYTES = frozenset(["penalised_ptr", "biased_ptr", "masked_ptr", "seen_ptr", "active_ptr"])


def type_of(name: str) -> str:
    if name in MODEL_POINTERS:
        return "*bf16"
    for names, kind in ((WORDS, "*i64"), (HALF_WORDS, "*i32"), (BYTES, "*u8")):
        if name in names:
            return kind
    if name.endswith("_ptr"):
        return "*fp32"
    return "fp32" if name in ("eps", "scale", "sharpness") or name.startswith("inverse") else "i32"
