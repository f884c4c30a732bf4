"""Writes checkpoints in Hugging Face's layout as GGUF files, as llama.cpp's converter does, with the gguf package."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import gguf
import numpy as np
from safetensors.torch import load_file

from services.common.model.files.checkpoint import SINGLE_FILE

_PARTS = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip
_AROUND = {
    "pre_feedforward_layernorm": "ffn_norm", "post_attention_layernorm": "post_attention_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}  # fmt: skip
"""Norms of blocks that have them around both parts."""
_WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
Type: TypeAlias = gguf.GGMLQuantizationType
Floats = np.ndarray[Any, np.dtype[np.float32]]


def write_gguf(
    path: Path,
    folder: Path,
    kind: Type = Type.F32,
    *,
    keys: Mapping[str, Any] | None = None,
    pre: str = "gpt-2",
    more: Callable[[gguf.GGUFWriter], None] = lambda _: None,
) -> None:
    """Write a folder's model, matrices as `kind` and vectors as F32; `keys` are those of the head set otherwise."""
    config = json.loads((folder / "config.json").read_text())
    arch = config["model_type"].removesuffix("_text")
    writer = gguf.GGUFWriter(path, arch)
    _add_sizes(writer, config)
    _add_tokenizer(writer, folder, pre)
    more(writer)
    for name, value in (keys or {}).items():
        kinds = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32, bool: writer.add_bool}
        writer.kv_data[0].pop(name, None)
        kinds[type(value)](name, value)
    for name, tensor in load_file(folder / SINGLE_FILE).items():
        values = tensor.float().numpy()
        if arch == "llama" and ("q_proj" in name or "k_proj" in name):
            heads = config["num_attention_heads" if "q_proj" in name else "num_key_value_heads"]
            values = interleaved(values, heads)
        if arch == "gemma3" and name.endswith("norm.weight"):
            values = values + 1
        _add_tensor(writer, gguf_name(name, arch), values, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def interleaved(values: Floats, heads: int) -> Floats:
    """The lines of queries or keys in the order that llama.cpp turns pairs in."""
    return np.ascontiguousarray(values.reshape(heads, 2, -1, values.shape[1]).swapaxes(1, 2).reshape(values.shape))


def gguf_name(name: str, arch: str = "llama") -> str:
    """The name of a tensor of Hugging Face's in a GGUF file."""
    parts = _PARTS | _AROUND if arch == "gemma3" else _PARTS
    part, _, kind = name.rpartition(".")
    if part in _WHOLE:
        return f"{_WHOLE[part]}.{kind}"
    layer, _, rest = part.removeprefix("model.layers.").partition(".")
    return f"blk.{layer}.{parts[rest]}.{kind}"


def quantised(values: Floats, kind: Type, seed: int = 0) -> "np.ndarray[Any, Any]":
    """The bytes of a matrix as `kind`: nearest ones, or for types that the package only reads, drawn ones."""
    try:
        return np.asarray(gguf.quants.quantize(values, kind))
    except NotImplementedError:
        return drawn(values.shape, kind, seed)


def drawn(shape: tuple[int, ...], kind: Type, seed: int) -> "np.ndarray[Any, Any]":
    """Random blocks of a type of 256 numbers, with scales about those of weights."""
    numbers, size = gguf.GGML_QUANT_SIZES[kind]
    lines = np.random.default_rng(seed).integers(0, 256, (*shape[:-1], shape[-1] // numbers, size), np.uint8)
    places = {Type.Q6_K: (208,), Type.Q4_K: (0, 2), Type.Q5_K: (0, 2), Type.Q2_K: (80, 82), Type.Q3_K: (108,)}[kind]
    scales = np.random.default_rng(seed + 1).uniform(1e-4, 4e-4, (*lines.shape[:-1], len(places)))
    for index, place in enumerate(places):
        lines[..., place : place + 2] = scales[..., index : index + 1].astype(np.float16).view(np.uint8)
    return lines.reshape(*shape[:-1], -1)


def _add_tensor(writer: gguf.GGUFWriter, name: str, values: Floats, kind: Type) -> None:
    if values.ndim == 1 or kind == Type.F32:
        writer.add_tensor(name, values)
    elif kind == Type.F16:
        writer.add_tensor(name, values.astype(np.float16))
    else:
        writer.add_tensor(name, quantised(values, kind, len(name)), raw_dtype=kind)


def _add_sizes(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    if "sliding_window" in config:
        writer.add_sliding_window(config["sliding_window"])
        writer.add_sliding_window_pattern(config["sliding_window_pattern"])


def _add_tokenizer(writer: gguf.GGUFWriter, folder: Path, pre: str) -> None:
    form = json.loads((folder / "tokenizer.json").read_text())
    told = json.loads((folder / "tokenizer_config.json").read_text())
    special = {token["content"]: token["special"] for token in form["added_tokens"]}
    tokens = sorted(form["model"]["vocab"], key=form["model"]["vocab"].__getitem__)
    types = {True: gguf.TokenType.CONTROL, False: gguf.TokenType.USER_DEFINED, None: gguf.TokenType.NORMAL}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([types[special.get(token)] for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in form["model"]["merges"]])
    writer.add_eos_token_id(tokens.index(told["eos_token"]))
    writer.add_chat_template(told["chat_template"])
