"""python -m deploy.models_page [--check]: writes models, GPUs and memory into docs/models.md, or says it is old.

Sizes come from the configurations that the models' makers published, in published_models.json, read as
`paceline serve` reads them.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.cluster.settings import ClusterSettings
from services.common.model.spec import Attention, ModelSpec
from services.common.model.weights.weights import model_shapes
from services.common.preflight import weights
from services.common.preflight.memory import SIZES, Gpu, Need, gb, memory_problem
from services.common.preflight.source import Source

PAGE = Path(__file__).resolve().parents[1] / "docs" / "models.md"
SOURCES = Path(__file__).with_name("published_models.json")
"""What config.json of each model says of its sizes."""
MARK = "<!-- Made by python -m deploy.models_page -->\n"
END = "<!-- End of what is made -->\n"
FRACTION = ClusterSettings.memory_fraction
DRAFT_LAYERS = 5
HUB = "https://huggingface.co/"
GPUS = {
    "24 GB: L4, A10, RTX 4090": 23028,
    "48 GB: L40S, A6000": 46068,
    "80 GB: A100, H100": 81559,
    "141 GB: H200": 143771,
}
"""GPUs of one class and the least memory that nvidia-smi tells of one of them, in MiB."""


@dataclass(frozen=True)
class Published:
    """A public model by its hub id, and its drafter's with the blocks that it reads, if there is one."""

    name: str
    config: dict[str, Any]
    drafter: str = ""
    taps: Sequence[int] = ()


def published() -> Sequence[Published]:
    """The models that are told, in their order."""
    return [Published(**one) for one in json.loads(SOURCES.read_text())]


def spec(model: Published) -> ModelSpec:
    """Its target as `paceline serve` reads it."""
    with tempfile.TemporaryDirectory() as made:
        (Path(made) / "config.json").write_text(json.dumps(model.config))
        return weights.target_spec(Source(made))


def shapes(model: Published) -> Mapping[str, tuple[int, ...]]:
    """The tensors of its target, by name."""
    return model_shapes(spec(model))


def need(model: Published) -> Need:
    """What its weights and its drafter's are, in numbers."""
    with tempfile.TemporaryDirectory() as made:
        (Path(made) / "config.json").write_text(json.dumps(model.config))
        target = weights.target_spec(Source(made))
        drafter = None
        if model.drafter:
            told = {"mask_token_id": 151669, "target_layer_ids": model.taps}
            count = {
                "num_target_layers": model.config["num_hidden_layers"],
                "num_hidden_layers": DRAFT_LAYERS,
                "block_size": 16,
            }
            config = model.config | count | {"architectures": ["DFlashDraftModel"], "dflash_config": told}
            (Path(made) / "config.json").write_text(json.dumps(config))
            drafter = weights.drafter_spec(Source(made), target)
    return Need(*weights.numbers(target, drafter))


def row(model: Published) -> str:
    """One row: the model, its least memory on a GPU and a CPU, that of K/V, the GPUs on which it starts, and how."""
    needed = need(model)
    least = [gb(needed.on_gpu(SIZES["bfloat16"], 1)), gb(needed.on_cpu(SIZES["float32"], 1))]
    cells = []
    for name, mib in GPUS.items():
        gpu = Gpu(name, mib << 20, mib << 20)
        cells.append("no" if memory_problem(model.name, needed, (gpu,), "bfloat16", FRACTION, 1) else "yes")
    drafts = f" --drafter {model.drafter}" if model.drafter else ""
    shown = [f"[{model.name.partition('/')[2]}]({HUB}{model.name})", *least, kv(model), *cells]
    return f"| {' | '.join(shown)} | `paceline serve {model.name}{drafts}` |"


def kv(model: Published) -> str:
    """Keys and values of a thousand tokens in bfloat16, those of a drafter's layers included.

    A layer with a sliding window keeps no more than that, and a recurrent one none: they are left out.
    """
    read = spec(model)
    keeping = [layer.mixer for layer in read.layers if isinstance(layer.mixer, Attention) and not layer.mixer.window]
    keeping += [read.attention] * DRAFT_LAYERS if model.drafter else []
    numbers = sum(2 * one.kv_heads * one.head_dim for one in keeping)
    return f"{1000 * numbers * SIZES['bfloat16'] / 1e9:.2f} GB"


def table() -> str:
    """One row for each model, one column for each class of GPUs."""
    head = f"| model | GPU, bfloat16 | CPU, float32 | K/V | {' | '.join(GPUS)} | command |"
    return "\n".join([head, "|---" * (5 + len(GPUS)) + "|", *(row(model) for model in published())]) + "\n"


def page() -> str:
    """The whole page: what a person wrote, and the table between its marks."""
    before, _, rest = PAGE.read_text().partition(MARK)
    return before + MARK + table() + END + rest.partition(END)[2]


def main() -> int:
    """1 when asked to check and the table is stale."""
    parser = argparse.ArgumentParser(prog="python -m deploy.models_page", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the table is old")
    if not parser.parse_args().check:
        PAGE.write_text(page())
    elif PAGE.read_text() != page():
        sys.stdout.write("docs/models.md is stale: python -m deploy.models_page\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
