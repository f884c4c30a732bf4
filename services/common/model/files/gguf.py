"""The tensors of a GGUF file, widened one by one by ggml's formulas.

A block's formula is computed in float32, as ggml does, and rounded once to bfloat16: these are the weights, whatever
type computes with them. Tensors of F32, F16 and BF16 are their own numbers.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from services.common.gguf.config import FREQUENCIES, architecture
from services.common.gguf.file import GgufError, GgufFile, GgufTensor, read_gguf
from services.common.gguf.folder import WEIGHTS_FILE
from services.common.model.fields.errors import ModelError
from services.common.model.fields.fields import read_object
from services.common.model.files.checkpoint import is_finite
from services.common.serving.progress import WEIGHTS, Progress

_WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_AROUND = {
    "ffn_norm": "pre_feedforward_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
"""Norms of blocks that have them around both parts."""
_NAME = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
_QUERIES, _KEYS = ".self_attn.q_proj.", ".self_attn.k_proj."
_PIECE = 1 << 20
"""Numbers that a thread widens at once."""
_OWN_NUMBERS = {"F32": np.float32, "F16": np.float16}


class GgufCheckpoint:
    """The tensors of the file that a folder describes, by Hugging Face's names.

    Raises:
        ModelError: the file is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self._file = read_gguf(folder / WEIGHTS_FILE)
            self._heads = _interleaved(self._file, folder)
        except GgufError as error:
            raise ModelError(str(error)) from error
        self._sandwich = architecture(self._file).sandwich
        block = _BLOCK | _AROUND if self._sandwich else _BLOCK
        tensors = self._file.tensors.items()
        self._tensors = {_common(name, block): tensor for name, tensor in tensors if name != FREQUENCIES}
        self._progress = Progress(WEIGHTS, sum(tensor.nbytes for tensor in self._tensors.values()))
        described = (folder / "config.json").read_bytes()
        self.revision = hashlib.sha256(described + self._file.digest.encode()).hexdigest()

    @property
    def names(self) -> frozenset[str]:
        """Names of all tensors."""
        return frozenset(self._tensors)

    def refuse_other_than(self, names: Iterable[str], skipped: tuple[str, ...] = ()) -> None:
        """Refuse tensors that are missing, and those that no layer asks for unless their names begin as `skipped`."""
        expected = set(names)
        for name in sorted(expected - self.names):
            raise ModelError(f"{self._path}: tensor {name} is missing")
        for name in sorted(self.names - expected):
            if not name.startswith(skipped):
                raise ModelError(f"{self._path}: tensor {name} is not part of this architecture")

    def read(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return one tensor as `dtype`, on the CPU.

        Raises:
            ModelError: missing, of another shape, not finite, or too large for `dtype`.
        """
        tensor = self.stored(name, shape)
        wide = _widened(self._path, tensor)
        self._progress.add(tensor.nbytes)
        for part, heads in self._heads.items():
            if part in name:
                wide = wide.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)
        if self._sandwich and name.endswith("norm.weight"):
            wide = wide - 1
        value = wide.to(dtype)
        if not is_finite(value):
            raise ModelError(f"{self._path}: tensor {name} holds NaN, infinity or a value beyond the range of {dtype}")
        return value.contiguous()

    def stored(self, name: str, shape: tuple[int, ...]) -> GgufTensor:
        """Return where a tensor lies.

        Raises:
            ModelError: missing, or of another shape.
        """
        tensor = self._tensors.get(name)
        if tensor is None:
            raise ModelError(f"{self._path}: tensor {name} is missing")
        if tensor.shape != shape:
            raise ModelError(f"{self._path}: tensor {name} has shape {tensor.shape}, expected {shape}")
        return tensor

    @property
    def _path(self) -> Path:
        return self._file.path.resolve()


def _widened(path: Path, tensor: GgufTensor) -> Tensor:
    raw = np.fromfile(path, np.uint8, tensor.nbytes, offset=tensor.start)
    if tensor.type == "BF16":
        return torch.from_numpy(raw).view(torch.bfloat16).view(tensor.shape)
    if tensor.type in _OWN_NUMBERS:
        return torch.from_numpy(raw.view(_OWN_NUMBERS[tensor.type])).view(tensor.shape)
    return _dequantised(raw, tensor)


def _dequantised(raw: "np.ndarray[tuple[int], np.dtype[np.uint8]]", tensor: GgufTensor) -> Tensor:
    """Widen pieces of lines in threads: the package's formulas run in one, and a table's float32 takes gigabytes."""
    try:
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize
    except ImportError as error:
        raise ModelError("a GGUF file needs the package gguf: pip install gguf") from error
    kind, depth = GGMLQuantizationType[tensor.type], tensor.shape[-1]
    lines = raw.reshape(-1, tensor.nbytes * depth // prod(tensor.shape))
    wide = torch.empty(len(lines), depth, dtype=torch.bfloat16)
    piece = max(1, _PIECE // depth)

    def widen(first: int) -> None:
        part = slice(first, first + piece)
        wide[part] = torch.from_numpy(dequantize(lines[part], kind))

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(widen, range(0, len(lines), piece)))
    return wide.view(tensor.shape)


def _interleaved(file: GgufFile, folder: Path) -> dict[str, int]:
    """Parts of names of tensors whose heads have their halves interleaved, and how many heads they have."""
    if not architecture(file).pairs_apart:
        return {}
    config = read_object(folder / "config.json")
    return {_QUERIES: config["num_attention_heads"], _KEYS: config["num_key_value_heads"]}


def _common(name: str, block: Mapping[str, str]) -> str:
    """Hugging Face's name of a tensor; names that are not known stay, and are refused as foreign."""
    if match := _NAME.fullmatch(name):
        layer, part, kind = match.groups()
        return f"model.layers.{layer}.{block[part]}.{kind}" if part in block else name
    part, _, kind = name.rpartition(".")
    return f"{_WHOLE[part]}.{kind}" if part in _WHOLE else name
