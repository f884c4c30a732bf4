"""Tiny checkpoints with packed weights, in every layout, and the numbers that they mean, worked out number by number.

Codes and scales are drawn, not made from a model: every code appears. The numbers come from Python's integers and
NumPy's floats, so nothing of the code that is tested takes part.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from services.common.model.files.manifest import write_manifest

Numbers = NDArray[np.float64]
Packed = tuple[dict[str, Tensor], Numbers]
"""Tensors by the ends of their names, and the numbers [F, D] that they mean."""
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Which of eight outputs the nibbles of a word hold."""


@dataclass(frozen=True)
class Layout:
    """`config` is `quantization_config`, `pack` draws a weight of a shape; `oracle` says whose code unpacks it, too."""

    config: Mapping[str, Any]
    pack: Callable[[tuple[int, int], Generator], Packed]
    oracle: str = ""


def bfloat16_once(values: Numbers) -> Tensor:
    """Round numbers to bfloat16 in one step, to the nearest and half to even; torch rounds float64 twice."""
    _, exponent = np.frexp(values)
    unit = np.maximum(exponent - 8, -133)
    return torch.from_numpy(np.ldexp(np.rint(np.ldexp(values, -unit)), unit)).to(torch.bfloat16)


def _e4m3(codes: NDArray[np.uint8]) -> Numbers:
    exponent, fraction = (codes >> 3) & 15, codes & 7
    small, normal = fraction / 512.0, np.ldexp(1.0 + fraction / 8.0, exponent.astype(np.int64) - 7)
    return np.where(codes & 128, -1.0, 1.0) * np.where(exponent == 0, small, normal)


def _e4m3_codes(shape: tuple[int, int], rng: Generator) -> tuple[Tensor, Numbers]:
    codes = rng.integers(0, 256, shape, dtype=np.uint8)
    codes[(codes & 127) == 127] = 1  # NaN
    return torch.from_numpy(codes).view(torch.float8_e4m3fn), _e4m3(codes)


def _scales(grid: tuple[int, ...], dtype: torch.dtype, rng: Generator, size: float) -> tuple[Tensor, Numbers]:
    scales = torch.from_numpy(size * np.exp(rng.normal(0, 0.3, grid))).to(dtype)
    return scales, scales.double().numpy()


def _spread(grid: Numbers, shape: tuple[int, int], block: tuple[int, int]) -> Numbers:
    rows, columns = (np.arange(length) // size for length, size in zip(shape, block, strict=True))
    return np.asarray(grid[rows][:, columns])


def _times(codes: Numbers, scales: Numbers) -> Numbers:
    """Codes times scales, rounded to float32: what scales of float32 need, and exact for shorter ones."""
    return (codes.astype(np.float32) * scales.astype(np.float32)).astype(np.float64)


def _words(codes: NDArray[np.int64], bits: int) -> Tensor:
    """Pack each row of codes into int32 words, lowest bits first, without gaps."""
    rows = []
    for row in codes:
        number = sum(int(code) << (bits * index) for index, code in enumerate(row))
        count = -(-len(row) * bits // 32)
        rows.append([(number >> (32 * index)) & 0xFFFFFFFF for index in range(count)])
    return torch.from_numpy(np.array(rows, dtype=np.uint32).view(np.int32))


def fp8(block: tuple[int, int] | None, dtype: torch.dtype, scale: str = "weight_scale", **config: Any) -> Layout:
    """Blocks that divide nothing, or one `scale`."""

    def pack(shape: tuple[int, int], rng: Generator) -> Packed:
        codes, numbers = _e4m3_codes(shape, rng)
        size = block or shape
        grid = tuple(-(-length // part) for length, part in zip(shape, size, strict=True))
        scales, wide = _scales(grid, dtype, rng, 2e-3)
        value = _times(numbers, _spread(wide, shape, size))
        if block is None:
            return {"weight": codes, scale: scales.view(())}, value
        return {"weight": codes, "weight_scale_inv": scales}, value

    own = {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": block and list(block),
    }
    return Layout(own | config, pack, "transformers")


def fp8_powers(block: tuple[int, int]) -> Layout:
    """Scales of eight bits, which are powers of two."""

    def pack(shape: tuple[int, int], rng: Generator) -> Packed:
        codes, numbers = _e4m3_codes(shape, rng)
        grid = tuple(-(-length // part) for length, part in zip(shape, block, strict=True))
        exponents = rng.integers(115, 120, grid, dtype=np.uint8)
        scales = torch.from_numpy(exponents).view(torch.float8_e8m0fnu)
        wide = np.ldexp(1.0, exponents.astype(np.int64) - 127)
        return {"weight": codes, "weight_scale_inv": scales}, numbers * _spread(wide, shape, block)

    config = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": list(block)}
    return Layout(config | {"scale_fmt": "ue8m0"}, pack, "transformers")


def _grouped(codes: NDArray[np.int64], zeros: Numbers, scales: Numbers, group_D: NDArray[np.int64]) -> Numbers:
    return _times(codes - zeros[:, group_D], scales[:, group_D])


def awq(group: int, dtype: torch.dtype = torch.float16) -> Layout:
    """AutoAWQ's layout for its GEMM kernels."""

    def words(codes_FD: NDArray[np.int64]) -> Tensor:
        eights = codes_FD.T.reshape(codes_FD.shape[1], -1, 8)[:, :, list(_AWQ_ORDER)]
        return _words(eights.reshape(codes_FD.shape[1], -1), 4)

    def pack(shape: tuple[int, int], rng: Generator) -> Packed:
        size = shape[1] if group < 0 else group
        groups = (shape[0], shape[1] // size)
        codes, zeros = rng.integers(0, 16, shape), rng.integers(0, 16, groups)
        scales, wide = _scales(groups, dtype, rng, 0.02)
        value = _grouped(codes, zeros.astype(np.float64), wide, np.arange(shape[1]) // size)
        return {"qweight": words(codes), "qzeros": words(zeros), "scales": scales.t().contiguous()}, value

    config = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm"}
    return Layout(config | {"modules_to_not_convert": None, "backend": "autoawq"}, pack)


def gptq(bits: int, group: int, sym: bool, desc_act: bool = False, version: str = "gptq") -> Layout:
    """AutoGPTQ's and GPTQModel's layouts."""

    def pack(shape: tuple[int, int], rng: Generator) -> Packed:
        size = shape[1] if group < 0 else group
        groups = (shape[0], shape[1] // size)
        codes = rng.integers(0, 1 << bits, shape)
        added = 1 if version == "gptq" else 0
        stored = np.full(groups, (1 << (bits - 1)) - added) if sym else rng.integers(0, 1 << bits, groups)
        scales, wide = _scales(groups, torch.float16, rng, 0.3 / (1 << bits))
        group_D = np.arange(shape[1]) // size
        if desc_act:
            group_D = rng.permutation(group_D)
        value = _grouped(codes, stored.astype(np.float64) + added, wide, group_D)
        tensors = {
            "qweight": _words(codes, bits).t().contiguous(),
            "qzeros": _words(stored.T, bits),
            "scales": scales.t().contiguous(),
            "g_idx": torch.from_numpy(group_D.astype(np.int32)),
            "bias": torch.zeros(shape[0], dtype=torch.float16),
        }
        return tensors, value

    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": sym, "desc_act": desc_act}
    return Layout(config | {"checkpoint_format": version, "damp_percent": 0.01, "true_sequential": True}, pack)


def _scheme(layout: str, weights: Mapping[str, Any], rows: Mapping[str, Any] | None = None) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": dict(weights), "input_activations": rows, "output_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": layout,
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "quantization_status": "compressed",
        "global_compression_ratio": None,
    }


_ROWS = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True, "symmetric": True}
_ORACLE = "compressed-tensors"


def ct_bytes(
    strategy: str, kind: str, symmetric: bool = True, dtype: torch.dtype = torch.bfloat16,
    blocks: tuple[int, int] = (24, 40),
) -> Layout:  # fmt: skip
    """One number a byte: FP8 or int8, with scales of lines, of the tensor, of `blocks` or of groups."""
    block = {"tensor": (0, 0), "channel": (1, 0), "block": blocks, "group": (1, 16)}[strategy]
    weights: dict[str, Any] = {"num_bits": 8, "type": kind, "strategy": strategy, "symmetric": symmetric}
    if strategy == "group":
        weights["group_size"] = 16
    if strategy == "block":
        weights["block_structure"] = list(blocks)

    def pack(shape: tuple[int, int], rng: Generator) -> Packed:
        size = block[0] or shape[0], block[1] or shape[1]
        grid = tuple(-(-length // part) for length, part in zip(shape, size, strict=True))
        if kind == "float":
            codes, numbers = _e4m3_codes(shape, rng)
        else:
            whole = rng.integers(-128, 128, shape, dtype=np.int8)
            codes, numbers = torch.from_numpy(whole), whole.astype(np.float64)
        scales, wide = _scales(grid, dtype, rng, 2e-3)
        tensors = {"weight": codes, "weight_scale": scales.view(1) if strategy == "tensor" else scales}
        if not symmetric:
            zeros = rng.integers(-128, 128, grid, dtype=np.int8)
            tensors["weight_zero_point"] = torch.from_numpy(zeros)
            numbers = numbers - _spread(zeros.astype(np.float64), shape, size)
        return tensors, _times(numbers, _spread(wide, shape, size))

    rows = _ROWS | {"type": kind}
    return Layout(_scheme("float-quantized" if kind == "float" else "int-quantized", weights, rows), pack, _ORACLE)


def ct_packed(
    bits: int, group: int, symmetric: bool = True, dtype: torch.dtype = torch.bfloat16, order: bool = False
) -> Layout:
    """Integers of some bits without gaps."""
    weights: dict[str, Any] = {"num_bits": bits, "type": "int", "symmetric": symmetric}
    weights |= (
        {"strategy": "group", "group_size": group} if group > 0 else {"strategy": "channel" if group else "tensor"}
    )
    weights |= {"actorder": "group"} if order else {}

    def pack(shape: tuple[int, int], rng: Generator) -> Packed:
        size = group if group > 0 else shape[1]
        groups = (shape[0] if group else 1, shape[1] // size)
        codes, middle = rng.integers(0, 1 << bits, shape), 1 << (bits - 1)
        scales, wide = _scales(groups, dtype, rng, 0.3 / (1 << bits))
        zeros = np.full(groups, middle) if symmetric else rng.integers(0, 1 << bits, groups)
        if not group:
            zero = torch.tensor([zeros[0, 0] - middle]).char()
            own = {"weight_packed": _words(codes, bits), "weight_shape": torch.tensor(shape), "weight_zero_point": zero}
            return own | {"weight_scale": scales.view(1)}, _times(codes - zeros[0, 0], wide)
        group_D = np.arange(shape[1]) // size
        tensors = {"weight_packed": _words(codes, bits), "weight_scale": scales, "weight_shape": torch.tensor(shape)}
        if not symmetric:
            tensors["weight_zero_point"] = _words(zeros.T, bits).t().contiguous()
        if order:
            group_D = rng.permutation(group_D)
            tensors["weight_g_idx"] = torch.from_numpy(group_D.astype(np.int32))
        return tensors, _grouped(codes, zeros.astype(np.float64), wide, group_D)

    return Layout(_scheme("pack-quantized", weights), pack, "" if order else _ORACLE)


def _fp4_codes(shape: tuple[int, int], rng: Generator) -> tuple[Tensor, Numbers]:
    codes = rng.integers(0, 16, shape, dtype=np.uint8)
    packed = torch.from_numpy(codes[:, 0::2] | (codes[:, 1::2] << 4))
    signed = np.array([*_E2M1, *(-one for one in _E2M1)])
    return packed, signed[codes]


def nvfp4(modelopt: bool) -> Layout:
    """Scales of 16 columns in E4M3; one of the tensor divides, ModelOpt's multiplies."""

    def pack(shape: tuple[int, int], rng: Generator) -> Packed:
        packed, numbers = _fp4_codes(shape, rng)
        codes = rng.integers(8, 127, (shape[0], shape[1] // 16), dtype=np.uint8)
        exact = (numbers * _spread(_e4m3(codes), shape, (1, 16))).astype(np.float32)
        scales = torch.from_numpy(codes).view(torch.float8_e4m3fn)
        whole = np.float32(7e-5 if modelopt else 13711.0)
        value = (exact * whole if modelopt else exact / whole).astype(np.float64)
        if modelopt:
            more = {"weight_scale_2": torch.tensor(whole), "input_scale": torch.tensor(0.1)}
            return {"weight": packed, "weight_scale": scales} | more, value
        more = {"weight_global_scale": torch.tensor([whole]), "input_global_scale": torch.tensor([300.0])}
        return {"weight_packed": packed, "weight_scale": scales} | more, value

    weights = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}
    if modelopt:
        return Layout({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}, pack)
    return Layout(_scheme("nvfp4-pack-quantized", weights, weights | {"dynamic": "local"}), pack)


def mx(bits: int) -> Layout:
    """Scales of 32 columns that are powers of two."""

    def pack(shape: tuple[int, int], rng: Generator) -> Packed:
        codes, numbers = _fp4_codes(shape, rng) if bits == 4 else _e4m3_codes(shape, rng)
        exponents = rng.integers(118, 124, (shape[0], shape[1] // 32), dtype=np.uint8)
        wide = np.ldexp(1.0, exponents.astype(np.int64) - 127 - (0 if bits == 4 else 6))
        scales = torch.from_numpy(exponents if bits == 4 else exponents - 6)
        end = "weight_packed" if bits == 4 else "weight"
        return {end: codes, "weight_scale": scales}, numbers * _spread(wide, shape, (1, 32))

    weights = {"num_bits": bits, "type": "float", "strategy": "group", "group_size": 32, "symmetric": True}
    return Layout(_scheme("mxfp4-pack-quantized" if bits == 4 else "mxfp8-quantized", weights), pack, _ORACLE)


_F32, _F16, _BF16 = torch.float32, torch.float16, torch.bfloat16
LAYOUTS: Mapping[str, Layout] = {
    "fp8-bf16": fp8((128, 128), _BF16, modules_to_not_convert=["lm_head", "model.layers.0.input_layernorm"]),
    "fp8-f16": fp8((24, 20), _F16, ignored_layers=["lm_head"]),
    "fp8-f32": fp8((16, 48), _F32),
    "fp8-tensor": fp8(None, _F32),
    "fp8-tensor-inv": fp8(None, _BF16, "weight_scale_inv"),
    "fp8-ue8m0": fp8_powers((16, 24)),
    "awq": awq(16),
    "awq-lines": awq(-1, _BF16),
    "gptq": gptq(4, 16, sym=True),
    "gptq-asymmetric": gptq(4, 32, sym=False),
    "gptq-v2": gptq(4, 16, sym=False, version="gptq_v2"),
    "gptq-ordered": gptq(4, 16, sym=True, desc_act=True),
    "gptq-8": gptq(8, -1, sym=True),
    "gptq-3": gptq(3, 32, sym=False),
    "gptq-2": gptq(2, 16, sym=False),
    "ct-fp8-lines": ct_bytes("channel", "float"),
    "ct-fp8-lines-f32": ct_bytes("channel", "float", dtype=_F32),
    "ct-fp8-tensor": ct_bytes("tensor", "float"),
    "ct-fp8-block": ct_bytes("block", "float"),
    "ct-fp8-block-128": ct_bytes("block", "float", blocks=(128, 128)),
    "ct-int8": ct_bytes("channel", "int"),
    "ct-int8-f32": ct_bytes("channel", "int", dtype=_F32),
    "ct-int8-asymmetric": ct_bytes("channel", "int", symmetric=False),
    "ct-int8-groups": ct_bytes("group", "int"),
    "ct-int4": ct_packed(4, 16),
    "ct-int4-asymmetric": ct_packed(4, 16, symmetric=False),
    "ct-int4-lines": ct_packed(4, -1, dtype=_F32),
    "ct-int4-ordered": ct_packed(4, 16, order=True),
    "ct-int3": ct_packed(3, 32, symmetric=False),
    "ct-int5": ct_packed(5, 16),
    "ct-int8-packed": ct_packed(8, 16, symmetric=False),
    "ct-int4-tensor": ct_packed(4, 0, symmetric=False),
    "ct-nvfp4": nvfp4(modelopt=False),
    "modelopt-nvfp4": nvfp4(modelopt=True),
    "ct-mxfp4": mx(4),
    "ct-mxfp8": mx(8),
}
"""By name; groups fit a tiny model's sizes."""


def packable(tensors: Mapping[str, Tensor]) -> Iterator[str]:
    """Names, without `.weight`, of the weights of products; routers are left plain."""
    plain = (".gate.weight", ".shared_expert_gate.weight")
    for name, value in tensors.items():
        if value.ndim == 2 and "embed" not in name and not name.startswith("lm_head") and not name.endswith(plain):
            yield name.removesuffix(".weight")


def pack_checkpoint(folder: Path, twin: Path, layout: Layout, seed: int = 0) -> dict[str, Tensor]:
    """Pack the weights of the checkpoint in `folder`, and write to `twin` a copy with plain ones in bfloat16.

    Returns the twin's weights of products, bfloat16, by name.
    """
    rng = np.random.default_rng(seed)
    tensors = {name: value.to(torch.bfloat16) for name, value in load_file(folder / "model.safetensors").items()}
    packed, plain = dict(tensors), {}
    for prefix in list(packable(tensors)):
        shape = tensors[f"{prefix}.weight"].shape
        parts, numbers = layout.pack((shape[0], shape[1]), rng)
        del packed[f"{prefix}.weight"]
        packed |= {
            f"{prefix}.{end}": part.contiguous() for end, part in parts.items() if f"{prefix}.{end}" not in packed
        }
        plain[f"{prefix}.weight"] = bfloat16_once(numbers)
    twin.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if path.suffix == ".json":
            (twin / path.name).write_bytes(path.read_bytes())
    config = json.loads((folder / "config.json").read_text()) | {"quantization_config": dict(layout.config)}
    (folder / "config.json").write_text(json.dumps(config))
    for where, values in ((folder, packed), (twin, tensors | plain)):
        save_file(values, where / "model.safetensors", metadata={"format": "pt"})
        write_manifest(where)
    return plain
