"""python -m deploy.formats [--check]: writes the table of packed weights into docs/use.md, or says it is old."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from deploy.models_page import published, shapes
from services.common.gguf.file import BITS
from services.common.model.fields.fields import Fields
from services.common.model.files.weight_format import Shape, TensorPart
from services.common.model.files.weight_formats import FORMATS, KEY, read_format

PAGE = Path(__file__).resolve().parents[1] / "docs" / "use.md"
MARK = "<!-- Made from services/common/model/files/weight_formats by python -m deploy.formats -->\n"
END = "<!-- End of what is made -->\n"


HIDDEN = 4096
"""Sizes are those of the first published model as wide as this."""
_TABLES = ("embed_tokens", "lm_head")
_WIDE = 16
"""Bits of bfloat16: of what is not packed, and of all once it is loaded."""
_WHOLE, _BLOCKS = "int-quantized", "weight_block_size"
"""Of which a CPU multiplies by the numbers of the file where that is asked for."""
_READ, _GPUS = "widened", "8.0 and newer"
"""How weights of every format reach the products, and which GPUs do."""
_GGUF_TYPES = ("Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q4_0", "F16")


def table() -> str:
    """One row for each kind of file, and for the usual types of GGUF."""
    sizes = shapes(next(model for model in published() if model.config["hidden_size"] == HIDDEN))
    loaded = _gigabytes(sizes, _WIDE, packs_tables=True)
    kinds = [kind for _, file in sorted(FORMATS.items()) for kind in file.KINDS]
    rows = []
    for kind in kinds:
        bits = [_bits_of(example) for example in kind.examples]
        rows.append((kind.config, kind.files, bits, [_gigabytes(sizes, one) for one in bits], kind.refused))
    for name in _GGUF_TYPES:
        size = [_gigabytes(sizes, BITS[name], packs_tables=True)]
        rows.append((f"none, a GGUF file: `{name}`", f"`*-{name}*.gguf`", [BITS[name]], size, "IQ types, splits"))
    lines = [
        f"| {config} | {files} | {_all(bits)} | {_all(size)} | {_read(config)} | {loaded:.1f} | {_GPUS} | {refused} |"
        for config, files, bits, size, refused in rows
    ]
    head = "| `quantization_config` | files named | bits | GB in the file | read | GB loaded | GPU | refused |"
    return "\n".join([head, "|---|---|---|---|---|---|---|---|", *lines]) + "\n"


def _read(config: str) -> str:
    kept = "int8" if _WHOLE in config else "fp8" if _BLOCKS in config else ""
    return f"{_READ}, or as it is (`--activations {kept}`)" if kept else _READ


def _all(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:.3g}" for number in numbers)


def _bits_of(example: Mapping[str, Any]) -> float:
    """Return the bits of a number, its scales among them, as the format's own parts say; scales have two bytes."""
    shape, packed = (4096, 4096), read_format(Fields(PAGE, {KEY: example}))
    assert packed is not None, "the example packs nothing"
    parts = packed.parts("model.layers.0.mlp.up_proj", shape)
    return sum(_part_bits(part) for part in parts.values() if not part.optional) / prod(shape)


def _part_bits(part: TensorPart) -> int:
    return 8 * prod(part.shape) * min(dtype.itemsize for dtype in part.dtypes)


def _gigabytes(sizes: Mapping[str, Shape], bits: float, packs_tables: bool = False) -> float:
    """Return the bytes of tensors whose matrices have so many bits; embedding and head stay wide where they are not."""
    packed = {
        name
        for name, shape in sizes.items()
        if len(shape) > 1 and (packs_tables or not any(t in name for t in _TABLES))
    }
    return sum(prod(shape) * (bits if name in packed else _WIDE) for name, shape in sizes.items()) / 8e9


def page() -> str:
    """The whole page: what a person wrote, and the table between its marks."""
    before, _, rest = PAGE.read_text().partition(MARK)
    return before + MARK + table() + END + rest.partition(END)[2]


def main() -> int:
    """1 when asked to check and the table is stale."""
    parser = argparse.ArgumentParser(prog="python -m deploy.formats", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the table is old")
    if not parser.parse_args().check:
        PAGE.write_text(page())
    elif PAGE.read_text() != page():
        sys.stdout.write("docs/use.md is stale: python -m deploy.formats\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
