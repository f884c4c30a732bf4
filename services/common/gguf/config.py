"""config.json and generation_config.json of the model in a GGUF file, in Hugging Face's words."""

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.common.gguf.file import GgufError, GgufFile
from services.common.gguf.keys import check_arithmetic, check_types

FREQUENCIES = "rope_freqs.weight"
"""What each frequency is divided by: Llama 3's stretching, worked out."""
_ENDS = ("<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<end_of_turn>")
"""Control tokens that end a text by their spelling, whatever the file names as its end."""
_END_KEYS = tuple(f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom"))
_CONTROL = 3
JOIN = "join them with: llama-gguf-split --merge FIRST OUT"
_SAMPLING: Mapping[str, str] = {
    "temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p", "penalty_repeat": "repetition_penalty",
}  # fmt: skip
_SCALED_BY_WIDTH = 62
"""Layers of the one Gemma 3 (27B) that scales scores by another size than that of its heads."""


@dataclass(frozen=True)
class Architecture:
    """An architecture of llama.cpp's, as Hugging Face calls it.

    `pairs_apart`: the file has the two halves of a head of queries or keys interleaved. `sandwich`: blocks have norms
    around both parts, whose weights have 1 added in the file, and most layers have a sliding window.
    """

    name: str
    model_type: str
    pairs_apart: bool = False
    sandwich: bool = False


ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture("LlamaForCausalLM", "llama", pairs_apart=True),
    "qwen2": Architecture("Qwen2ForCausalLM", "qwen2"),
    "qwen3": Architecture("Qwen3ForCausalLM", "qwen3"),
    "gemma3": Architecture("Gemma3ForCausalLM", "gemma3_text", sandwich=True),
}


def architecture(file: GgufFile) -> Architecture:
    """Return what the model is.

    Raises:
        GgufError: it is no model of the architectures that are served, a part of one, or a vocabulary alone.
    """
    name, kind = file.keys.get("general.architecture"), file.keys.get("general.type", "model")
    if kind != "model":
        raise file.error("general.type", f"{kind!r} is not served, only a whole model is")
    if file.keys.get("split.count", 0) > 1:
        raise file.error("split.count", f"is one of several files; {JOIN}")
    if name not in ARCHITECTURES:
        raise file.error("general.architecture", f"{name!r} is not served, only {', '.join(ARCHITECTURES)}")
    if not file.tensors:
        raise file.error("tensors", "it holds a vocabulary and no weights; take the model's file")
    experts = file.keys.get(f"{name}.expert_count", 0)
    if experts:
        raise file.error(f"{name}.expert_count", f"a model of {experts} experts is not served")
    return ARCHITECTURES[str(name)]


def config(file: GgufFile) -> dict[str, Any]:
    """Return what config.json says.

    Raises:
        GgufError: a key is missing or asks for what is not served.
    """
    check_types(file)
    own, sizes = architecture(file), _Sizes(file)
    check_arithmetic(file, own.sandwich)
    heads = sizes.take("attention.head_count", int)
    hidden = sizes.take("embedding_length", int)
    head_dim = sizes.take("attention.key_length", int, hidden // max(heads, 1))
    for other in ("attention.value_length", "rope.dimension_count"):
        if sizes.take(other, int, head_dim) != head_dim:
            raise file.error(other, f"differs from the {head_dim} of a head of keys")
    told: dict[str, Any] = {
        "architectures": [own.name],
        "model_type": own.model_type,
        "vocab_size": _vocabulary(file),
        "hidden_size": hidden,
        "intermediate_size": sizes.take("feed_forward_length", int),
        "num_hidden_layers": sizes.take("block_count", int),
        "num_attention_heads": heads,
        "num_key_value_heads": sizes.take("attention.head_count_kv", int, heads),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": sizes.take("attention.layer_norm_rms_epsilon", float),
        "max_position_embeddings": sizes.take("context_length", int),
        "rope_theta": sizes.take("rope.freq_base", float, 10000.0),
        "rope_scaling": _scaling(file, sizes, head_dim),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "torch_dtype": "bfloat16",
        "bos_token_id": file.keys.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": file.keys.get(_END_KEYS[0]),
    }
    return told | _sandwich(sizes, told) if own.sandwich else told


def _sandwich(sizes: "_Sizes", told: Mapping[str, Any]) -> dict[str, Any]:
    """What config.json says more of blocks with norms around their parts; files do not tell how scores are scaled."""
    most = told["num_hidden_layers"] == _SCALED_BY_WIDTH
    scalar = told["hidden_size"] // told["num_attention_heads"] if most else told["head_dim"]
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": scalar,
        "rope_local_base_freq": sizes.take("rope.freq_base_swa", float, 10000.0),
        "sliding_window": sizes.take("attention.sliding_window", int),
    } | _sliding(sizes, told["num_hidden_layers"])


def _sliding(sizes: "_Sizes", layers: int) -> dict[str, Any]:
    """Which layers have a window: all but every so many, or a list that says it of each."""
    key = "attention.sliding_window_pattern"
    if not isinstance(each := sizes.given(key), list):
        return {"sliding_window_pattern": sizes.take(key, int, 6)}
    if len(each) != layers or any(type(one) is not bool for one in each):
        raise sizes.error(key, f"does not say of each of {layers} layers whether it has a window")
    return {"layer_types": ["sliding_attention" if one else "full_attention" for one in each]}


def generation_config(file: GgufFile) -> dict[str, Any]:
    """Return what generation_config.json says: all tokens that end a text."""
    named = [file.keys[key] for key in _END_KEYS if key in file.keys]
    tokens, types = (file.keys.get(f"tokenizer.ggml.{name}", []) for name in ("tokens", "token_type"))
    spelled = [place for place, (token, kind) in enumerate(zip(tokens, types, strict=False))
               if kind == _CONTROL and token in _ENDS]  # fmt: skip
    return {"eos_token_id": list(dict.fromkeys(named + spelled))} | _recommended(file)


def _recommended(file: GgufFile) -> dict[str, float]:
    """The sampling that the model's makers recommend, as converters take it out of their file."""
    found: dict[str, float] = {}
    for name, ours in _SAMPLING.items():
        value = file.keys.get(f"general.sampling.{name}")
        if isinstance(value, float):
            found[ours] = _decimal(value)
        elif type(value) is int:
            found[ours] = value
    return found


class _Sizes:
    """Keys that begin with the architecture's name."""

    def __init__(self, file: GgufFile) -> None:
        self._file, self._prefix = file, file.keys["general.architecture"]

    def given(self, name: str) -> Any:
        """What stands there, of any type."""
        return self._file.keys.get(f"{self._prefix}.{name}")

    def error(self, name: str, message: str) -> GgufError:
        """An error that names the file and the key."""
        return self._file.error(f"{self._prefix}.{name}", message)

    def take(self, name: str, kind: type[Any], default: Any = None) -> Any:
        key = f"{self._prefix}.{name}"
        value = self._file.keys.get(key, default)
        if value is None:
            raise self._file.error(key, "is missing")
        if type(value) is list and len(set(value)) == 1:
            value = value[0]
        if type(value) is not kind:
            raise self._file.error(key, f"must be one {kind.__name__}, is {str(value)[:80]}")
        return _decimal(value) if kind is float else value


def _decimal(value: float) -> float:
    """The shortest decimal number that a 32-bit number stands for: what was written before it was narrowed."""
    for digits in range(1, 10):
        short = float(f"{value:.{digits}g}")
        if struct.pack("<f", short) == struct.pack("<f", value):
            return short
    return value


def _vocabulary(file: GgufFile) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise file.error("token_embd.weight", "is missing")
    return embedding.shape[0]


def _scaling(file: GgufFile, sizes: _Sizes, head_dim: int) -> dict[str, Any] | None:
    """How frequencies are stretched; a factor without a type is a linear one, as llama.cpp reads it."""
    factor = sizes.take("rope.scaling.factor", float, 0.0) or sizes.take("rope.scale_linear", float, 0.0)
    kind = sizes.take("rope.scaling.type", str, "linear" if factor else "none")
    plain = kind == "none" or (kind == "linear" and factor == 1)
    if FREQUENCIES in file.tensors:
        if kind in ("linear", "yarn") and not plain:
            raise file.error("rope.scaling", f"{kind!r} beside {FREQUENCIES} is not served, only one of them")
        return _llama3(file, sizes.take("rope.freq_base", float, 10000.0), head_dim)
    if plain:
        return None
    if kind == "linear" and architecture(file).sandwich:
        return {"rope_type": "linear", "factor": factor}
    if kind != "yarn":
        raise file.error("rope.scaling", f"{kind!r} is not served, only yarn and Llama 3's are")
    given: dict[str, Any] = {"rope_type": "yarn", "factor": sizes.take("rope.scaling.factor", float)}
    given["original_max_position_embeddings"] = sizes.take("rope.scaling.original_context_length", int)
    for name, of in (("beta_fast", "yarn_beta_fast"), ("beta_slow", "yarn_beta_slow")):
        if (value := sizes.take(f"rope.scaling.{of}", float, 0.0)) > 0:
            given[name] = value
    return given


def stretching(file: GgufFile) -> bytes:
    """Return the file's divisors of frequencies, which are part of the configuration; empty if it has none.

    Raises:
        GgufError: they are no numbers of 32 bits.
    """
    tensor = file.tensors.get(FREQUENCIES)
    if tensor is None:
        return b""
    if tensor.type != "F32" or len(tensor.shape) != 1:
        raise file.error(FREQUENCIES, f"must be a list of F32, is {tensor.type} of {tensor.shape}; fetch it again")
    with file.path.open("rb") as data:
        data.seek(tensor.start)
        return data.read(tensor.nbytes)


def _llama3(file: GgufFile, theta: float, head_dim: int) -> dict[str, Any]:
    """The parameters that make the file's divisors: all published models differ in `factor` alone.

    Raises:
        GgufError: they make others.
    """
    divisors = struct.unpack(f"<{len(stretching(file)) // 4}f", stretching(file))
    if not (1 < theta < math.inf) or not all(0.99 < divisor < math.inf for divisor in divisors):
        raise file.error(FREQUENCIES, f"divisors below 1, or a rope.freq_base of {theta}, are not served")
    given: dict[str, float] = {"factor": float(f"{max(divisors):.6g}"), "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    given["original_max_position_embeddings"] = 8192
    made = [_divisor(2 * math.pi * theta ** (2 * pair / head_dim), **given) for pair in range(head_dim // 2)]
    if len(made) != len(divisors) or any(abs(a - b) > 1e-4 * b for a, b in zip(made, divisors, strict=True)):
        raise file.error(FREQUENCIES, "these frequencies are not Llama 3's, and no others are served")
    return {"rope_type": "llama3", **given}


def _divisor(
    wave: float,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_max_position_embeddings: float,
) -> float:
    turns = original_max_position_embeddings / wave
    if turns > high_freq_factor:
        return 1.0
    if turns < low_freq_factor:
        return factor
    kept = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor)
    return 1 / ((1 - kept) / factor + kept)
