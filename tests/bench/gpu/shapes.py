"""Shapes, acceptance profiles and bandwidth of the GPU benchmark."""

from dataclasses import replace
from typing import Any

from tests.support.tiny_checkpoints import TinyShape

QWEN3_4B = TinyShape(
    vocab=151936,
    hidden=2560,
    inner=9728,
    layers=36,
    heads=32,
    kv_heads=8,
    head_dim=128,
    context=40960,
    draft_layers=5,
    block_size=16,
    taps=(1, 9, 17, 25, 33),
)
QWEN3_8B = replace(QWEN3_4B, hidden=4096, inner=12288, tied=False)
QWEN3_14B = replace(QWEN3_8B, hidden=5120, inner=17408, layers=40, heads=40, taps=(1, 10, 19, 28, 37))
QWEN3_32B = replace(QWEN3_14B, inner=25600, layers=64, heads=64, taps=(1, 16, 31, 46, 61))
QWEN3_5_4B = TinyShape(
    vocab=248320,
    hidden=2560,
    inner=9216,
    layers=32,
    heads=16,
    kv_heads=4,
    head_dim=256,
    context=40960,
    draft_layers=5,
    block_size=16,
    taps=(1, 8, 15, 22, 29),
)
QWEN3_5_27B = replace(QWEN3_5_4B, hidden=5120, inner=17408, layers=64, heads=24, tied=False, taps=(1, 16, 31, 46, 61))
TINY = TinyShape(context=4096, block_size=16)
SMOLLM2 = TinyShape(
    vocab=49152, hidden=576, inner=1536, layers=30, heads=9, kv_heads=3, head_dim=64, context=8192, draft_layers=5,
    block_size=16, taps=(1, 8, 14, 20, 27),
)  # fmt: skip
DELTA_4B = {
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
}
DELTA_27B = DELTA_4B | {"linear_num_value_heads": 48}
"""Keys of a hybrid's config.json that its shape has no place for."""
QWEN3_30B_A3B = replace(QWEN3_4B, hidden=2048, inner=6144, layers=48, kv_heads=4, tied=False, taps=(1, 12, 23, 34, 45))
EXPERTS_30B = {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": True}
QWEN3_5_35B_A3B = replace(
    QWEN3_5_4B, hidden=2048, inner=512, layers=40, kv_heads=2, tied=False, taps=(1, 10, 19, 28, 37)
)
EXPERTS_35B = DELTA_4B | {
    "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512
}  # fmt: skip
GEMMA_26B = TinyShape(
    vocab=262144, hidden=2816, inner=2112, layers=6, heads=16, kv_heads=8, head_dim=256, context=40960, window=1024,
    draft_layers=2, block_size=16, taps=(1, 3, 5),
)  # fmt: skip
LAGUNA_XS = replace(
    QWEN3_4B, vocab=100352, hidden=2048, inner=8192, layers=8, heads=48, window=512, tied=False, draft_layers=2,
    taps=(1, 3, 5),
)  # fmt: skip
EXPERTS_GEMMA = {
    "enable_moe_block": True, "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704,
    "attention_k_eq_v": True, "num_global_key_value_heads": 2, "global_head_dim": 512, "final_logit_softcapping": 30.0,
    "layer_types": [*["sliding_attention"] * 5, "full_attention"],
}  # fmt: skip
EXPERTS_LAGUNA = {
    "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
    "layer_types": ["full_attention", *["sliding_attention"] * 3] * 2,
    "num_attention_heads_per_layer": [48, 64, 64, 64] * 2,
}  # fmt: skip
MIXTURES: dict[str, tuple[TinyShape, str, dict[str, Any]]] = {
    "30b-a3b": (replace(QWEN3_30B_A3B, layers=6, draft_layers=2, taps=(1, 3, 5)), "qwen3_moe", EXPERTS_30B),
    "35b-a3b": (replace(QWEN3_5_35B_A3B, layers=8, draft_layers=2, taps=(1, 3, 5)), "qwen3_5_moe_text", EXPERTS_35B),
    "gemma4-26b": (GEMMA_26B, "gemma4_text", EXPERTS_GEMMA),
    "laguna-xs": (LAGUNA_XS, "laguna", EXPERTS_LAGUNA),
}
"""Shape, family and keys of config.json of mixtures of experts, with few of their layers."""
RACED: dict[str, tuple[TinyShape, str, dict[str, Any]]] = {
    "qwen3-30b-a3b": (replace(QWEN3_30B_A3B, draft_layers=8), "qwen3_moe", EXPERTS_30B)
}
"""The same of mixtures whole, with the drafter that is published for them: what is raced beside dense models."""


def mixture(name: str, layers: int = 0) -> tuple[TinyShape, str, dict[str, Any]]:
    """Shape, family and keys of config.json of a mixture with so many layers, 0: few; lists of layers repeat."""
    shape, family, changes = MIXTURES[name]
    count = layers or shape.layers
    long = {key: (value * count)[:count] if isinstance(value, list) else value for key, value in changes.items()}
    return replace(shape, layers=count), family, long


FORMATS: dict[str, dict[str, Any]] = {
    "bf16": {},
    "fp8": {
        "quantization_config": {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "fmt": "e4m3",
            "weight_block_size": [128, 128],
        }
    },
    "int4": {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}},
}
"""What config.json says of weights, by the name of a format."""
SHAPES = {"qwen3-4b": QWEN3_4B, "qwen3-8b": QWEN3_8B, "qwen3-14b": QWEN3_14B, "qwen3-32b": QWEN3_32B} | {
    "smollm2": SMOLLM2, "tiny": TINY
}  # fmt: skip

VLLM = {
    16: (1.0, 1.0, 1.0, 1.0, 1.0, 0.5),
    8: (1.0, 1.0, 1.0, 1.0, 0.1),
    4: (1.0, 1.0, 0.2),
}
"""By width: the unconditional rates at which vLLM's synthetic acceptance was measured."""

PROFILES = {
    "P65": (0.85, 0.74, 0.61, 0.55, 0.50, 0.45, 0.40, 0.33, 0.28, 0.23, 0.19, 0.14, 0.11, 0.08, 0.04),
    "P30": (0.62, 0.45, 0.32, 0.22, 0.15, 0.10, 0.06, 0.04, 0.02, 0.01, 0.01),
    "P13": (0.22, 0.06, 0.02),
}
SCHEDULES = {f"K{width - 1}": rates for width, rates in VLLM.items()} | PROFILES
"""Rates that hold at every width; K15, K7 and K3 are vLLM's."""


def raced(name: str, weights: str = "bf16", tiny: bool = False) -> tuple[TinyShape, str, dict[str, Any]]:
    """Shape, family and keys of config.json of a raced model with weights of a format; a tiny one has its family."""
    shape, family, changes = RACED.get(name) or (SHAPES[name], "qwen3", {})
    return (TINY, family, FORMATS[weights]) if tiny else (shape, family, changes | FORMATS[weights])


def named(shape: str, weights: str) -> str:
    """Return the name that results give to a shape with weights of a format."""
    return shape if weights == "bf16" else f"{shape}-{weights}"


def rates_of(schedule: str, width: int) -> tuple[float, ...]:
    """The unconditional rates of a schedule at a width; those of `vllm` differ from width to width."""
    return VLLM.get(width, ()) if schedule == "vllm" else SCHEDULES[schedule]


def expected_tokens(rates: tuple[float, ...], width: int) -> float:
    """Mean tokens of a round of that width."""
    return 1.0 + sum(rates[: width - 1])


def layer_elements(shape: TinyShape) -> int:
    """Elements of the matrices of one layer."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return shape.hidden * (2 * queries + 2 * keys + 3 * shape.inner)


def target_elements(shape: TinyShape) -> int:
    """Elements of the target's matrices, its share of the drafter's checkpoint and the one table of tokens included."""
    projected = 2 * shape.draft_layers * shape.hidden * shape.kv_heads * shape.head_dim
    taps = len(shape.taps) * shape.hidden * shape.hidden + projected
    return shape.layers * layer_elements(shape) + shape.vocab * shape.hidden + taps


def drafter_elements(shape: TinyShape) -> int:
    """Elements of the drafter's own matrices; the table of tokens is the target's."""
    return shape.draft_layers * layer_elements(shape)


def kv_bytes(shape: TinyShape, rows: int, context: int, size: int = 2) -> int:
    """The target's K/V of some sequences."""
    return size * rows * context * shape.layers * 2 * shape.kv_heads * shape.head_dim


def verify_bytes(shape: TinyShape, rows: int, context: int, size: int = 2) -> int:
    """Fewest bytes of a verify: every matrix and the head once, the K/V of each sequence once."""
    return size * target_elements(shape) + kv_bytes(shape, rows, context, size)


def draft_bytes(shape: TinyShape, rows: int, context: int, size: int = 2) -> int:
    """Fewest bytes of a draft."""
    weights = drafter_elements(shape) + shape.vocab * shape.hidden
    kv = rows * context * shape.draft_layers * 2 * shape.kv_heads * shape.head_dim
    return size * (weights + kv)
