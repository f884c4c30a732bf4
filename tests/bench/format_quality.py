"""`python -m tests.bench.format_quality FILE...`: perplexity of a model in packed formats, ours beside an oracle's.

A model's products are packed as files of a format are, by compressed-tensors or as transformers' FP8 has it. Ours
reads the folder; the oracle is transformers with the numbers that the format's library makes of it. Windows of a text
are computed whole, each by itself, in float32 on a CPU. `fp8-rows` rounds rows too, each 128 numbers by their largest;
the last group may have fewer. One JSON line a format; exits with 1 where the two are further apart than a part in a
thousand.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationScheme
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from services.common.model import load_target
from services.common.model.families import open_family
from services.common.model.files.checkpoint import resolve_folder
from services.common.model.files.formats import open_checkpoint
from services.common.model.weights.weights import model_shapes
from tests.bench.kv_quality import logits
from tests.support.packed_checkpoints import packable

BOUND, BLOCK = 1e-3, 64
GROUP, MOST = 128, 448
Parts = dict[str, Tensor]
Logits = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Packing:
    """What config.json says, and how a weight in float32 becomes the tensors of a file and the numbers they mean.

    `activations` are those that ours is loaded with; the oracle's rows go through `rounded` before each product.
    """

    config: Mapping[str, Any]
    packed: Callable[[Tensor], tuple[Parts, Tensor]]
    activations: str = "auto"
    rounded: Callable[[Tensor], Tensor] | None = None


def fp8() -> Packing:
    """Blocks of e4m3 with scales in bfloat16; transformers' own product of both."""
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    def packed(weight_FD: Tensor) -> tuple[Parts, Tensor]:
        rows, columns = (size // BLOCK for size in weight_FD.shape)
        blocks = weight_FD.view(rows, BLOCK, columns, BLOCK)
        scale = (blocks.abs().amax((1, 3)) / 448).bfloat16()
        codes = (blocks / scale.float()[:, None, :, None]).clamp(-448, 448).to(torch.float8_e4m3fn).view_as(weight_FD)
        return {"weight": codes, "weight_scale_inv": scale}, Fp8Dequantize(None)._dequantize_one(
            codes, scale, torch.bfloat16
        )

    return Packing({"quant_method": "fp8", "weight_block_size": [BLOCK, BLOCK]}, packed)


def fp8_rows() -> Packing:
    """Blocks of 128, of which the last may be cut; rows and weights are multiplied as codes."""

    def packed(weight_FD: Tensor) -> tuple[Parts, Tensor]:
        (lines, depth), (rows, columns) = weight_FD.shape, (-(-size // GROUP) for size in weight_FD.shape)
        whole = torch.zeros(rows * GROUP, columns * GROUP)
        whole[:lines, :depth] = weight_FD
        scale = (whole.view(rows, GROUP, columns, GROUP).abs().amax((1, 3)) / MOST).bfloat16()
        scale_FD = scale.float().repeat_interleave(GROUP, 0).repeat_interleave(GROUP, 1)[:lines, :depth]
        codes = (weight_FD / scale_FD).clamp(-MOST, MOST).to(torch.float8_e4m3fn)
        return {"weight": codes, "weight_scale_inv": scale}, codes.float() * scale_FD

    def rounded(rows: Tensor) -> Tensor:
        depth = rows.shape[-1]
        groups = torch.nn.functional.pad(rows, (0, -depth % GROUP)).unflatten(-1, (-1, GROUP))
        scale = groups.abs().amax(-1, keepdim=True).clamp(min=1e-30) / MOST
        codes = (groups / scale).to(torch.float8_e4m3fn)
        return torch.as_tensor((codes.float() * scale).flatten(-2)[..., :depth])

    return Packing({"quant_method": "fp8", "weight_block_size": [GROUP, GROUP]}, packed, "fp8", rounded)


def compressed(layout: str, weights: Mapping[str, Any], rows: Mapping[str, Any] | None = None) -> Packing:
    """One scheme of compressed-tensors, packed and unpacked by it; symmetric, with the largest number as scale."""
    group = {"targets": ["Linear"], "weights": {"symmetric": True, **weights}, "input_activations": rows}
    scheme, library = QuantizationScheme(**group), BaseCompressor.get_value_from_registry(layout)
    most = 448 if weights["type"] == "float" else 2 ** (weights["num_bits"] - 1) - 1

    def packed(weight_FD: Tensor) -> tuple[Parts, Tensor]:
        parts = weight_FD.view(len(weight_FD), -1, weights.get("group_size", weight_FD.shape[1]))
        given = {"weight": weight_FD.bfloat16(), "weight_scale": (parts.abs().amax(-1) / most).bfloat16()}
        found = {name: part for name, part in library.compress(given, scheme).items() if part is not None}
        return found, library.decompress(dict(found), scheme)["weight"].bfloat16()

    config = {
        "quant_method": "compressed-tensors",
        "format": layout,
        "config_groups": {"group_0": {**group, "format": layout}},
    }
    return Packing({**config, "ignore": ["lm_head"], "quantization_status": "compressed"}, packed)


_ROW = {"num_bits": 8, "symmetric": True, "strategy": "token", "dynamic": True}
_CHANNEL = {"num_bits": 8, "strategy": "channel"}
PACKINGS: Mapping[str, Callable[[], Packing]] = {
    "fp8": fp8,
    "fp8-rows": fp8_rows,
    "ct-fp8": partial(compressed, "float-quantized", {**_CHANNEL, "type": "float"}, {**_ROW, "type": "float"}),
    "ct-int8": partial(compressed, "int-quantized", {**_CHANNEL, "type": "int"}, {**_ROW, "type": "int"}),
    "ct-int4": partial(
        compressed, "pack-quantized", {"num_bits": 4, "type": "int", "strategy": "group", "group_size": BLOCK}
    ),
}


def main(words: list[str]) -> int:
    """Print a line for each format."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.format_quality", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="texts, read as one")
    parser.add_argument("--model", default="smollm2", help="folder of a llama or qwen3 model, or a GGUF file")
    parser.add_argument("--formats", nargs="*", choices=list(PACKINGS), default=list(PACKINGS))
    parser.add_argument("--window", type=int, default=256, help="tokens of a window")
    parser.add_argument("--windows", type=int, default=4, help="windows at most")
    asked = parser.parse_args(words)
    folder = resolve_folder(asked.model)
    text = "".join(path.read_text() for path in asked.files)
    ids_T = torch.tensor(Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids)
    windows = [*ids_T.split(asked.window)][: asked.windows]
    apart = [told(name, folder, windows) for name in ("bfloat16", *asked.formats)]
    return int(max(apart) > BOUND)


def told(name: str, folder: Path, windows: list[Tensor]) -> float:
    """Print a format's line, and return how far apart ours and the oracle's are."""
    with tempfile.TemporaryDirectory() as scratch:
        packing = PACKINGS[name]() if name in PACKINGS else None
        oracle = written(folder, Path(scratch), packing)
        target = load_target(Path(scratch), activations=packing.activations if packing else "auto")
        ours = perplexity(partial(logits, target, coded=False), windows)
        theirs = perplexity(lambda ids_T: oracle(ids_T[None]).logits[0], windows)
    apart = abs(ours / theirs - 1)
    tokens = sum(len(ids_T) - 1 for ids_T in windows)
    print(json.dumps({"format": name, "tokens": tokens, "ours": ours, "oracle": theirs, "apart": apart}), flush=True)
    return apart


def written(folder: Path, to: Path, packing: Packing | None) -> Any:
    """Write a packed copy of a model, and return transformers' with the numbers that the copy means."""
    tensors = {name: value.bfloat16() for name, value in tensors_of(folder).items()}
    numbers, saved, config = dict(tensors), dict(tensors), json.loads((folder / "config.json").read_text())
    for prefix in packable(tensors) if packing else ():
        assert packing is not None
        parts, meant = packing.packed(saved.pop(f"{prefix}.weight").float())
        saved |= {f"{prefix}.{end}": part.contiguous() for end, part in parts.items()}
        numbers[f"{prefix}.weight"] = meant
    if packing:
        (to / "config.json").write_text(json.dumps({**config, "quantization_config": packing.config}))
    else:
        shutil.copy(folder / "config.json", to)
    save_file(saved, to / "model.safetensors")
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config)).float().eval()
    missing, unknown = model.load_state_dict({name: value.float() for name, value in numbers.items()}, strict=False)
    assert not unknown and set(missing) <= {"lm_head.weight"}, "the oracle has all numbers"
    if packing and (rounded := packing.rounded):
        for prefix in packable(tensors):
            model.get_submodule(prefix).register_forward_pre_hook(lambda _, rows: (rounded(rows[0]),))
    return model


def tensors_of(folder: Path) -> Parts:
    """All tensors of a model, float32, by the names that checkpoints give them."""
    source, shapes = open_checkpoint(folder), model_shapes(open_family(folder)[1])
    return {name: source.read(name, shape, torch.float32) for name, shape in shapes.items()}


@torch.inference_mode()
def perplexity(logits_of: Logits, windows: list[Tensor]) -> float:
    """Of the tokens of windows, each of which is read by itself; `logits_of` has the logits of a window's rows."""
    losses = [
        torch.nn.functional.cross_entropy(logits_of(ids_T)[:-1].double(), ids_T[1:], reduction="sum")
        for ids_T in windows
    ]
    return math.exp(float(sum(losses)) / sum(len(ids_T) - 1 for ids_T in windows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
