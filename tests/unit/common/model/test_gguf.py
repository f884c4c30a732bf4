"""A GGUF file is served as the folder it was made of: numbers, text and tokens."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from services.common.gguf.file import read_gguf
from services.common.model import ModelError, load_target
from services.common.model.families import read_target_spec
from services.common.model.files.checkpoint import SINGLE_FILE, resolve_folder
from services.common.model.files.formats import open_checkpoint
from services.common.model.weights.weights import model_shapes
from services.common.preflight.checks import refuse
from services.common.preflight.source import Source
from tests.lossless.oracle import Oracle
from tests.support.tiny_checkpoints import TinyShape, write_tiny
from tests.support.tiny_gguf import Type, gguf_name, write_gguf

BLOCKS_OF_32 = (Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0)
BLOCKS_OF_256 = (Type.Q2_K, Type.Q3_K, Type.Q4_K, Type.Q5_K, Type.Q6_K)
PLAIN = (Type.F32, Type.F16, Type.BF16)
FAMILIES = ("llama", "qwen2", "qwen3", "gemma3_text")
WINDOWS = {"layer_types": None, "sliding_window": 9, "sliding_window_pattern": 2}
"""A file says how often a layer has no window; scores are scaled by the size of heads."""
SMALL = TinyShape(layers=2, taps=(0,))
WIDE = TinyShape(hidden=256, inner=256, heads=8, kv_heads=4, head_dim=32, layers=2, taps=(0,), tied=False)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of the test's own; matrices are widened in several pieces, the last of them smaller."""
    monkeypatch.setattr("services.common.model.files.gguf._PIECE", 9000)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def written(tmp_path: Path, family: str, kind: Type, **more: Any) -> tuple[Path, Path]:
    """A folder and the GGUF file made of it."""
    shape = WIDE if kind in BLOCKS_OF_256 else SMALL
    changes = WINDOWS | {"query_pre_attn_scalar": shape.head_dim} if family == "gemma3_text" else {}
    made = write_tiny(tmp_path / "own", 5, shape, family=family, std=0.1, dtype=torch.bfloat16, changes=changes)
    folder = made.target
    path = tmp_path / "model.gguf"
    write_gguf(path, folder, kind, **more)
    return folder, path


def widened(found: gguf.ReaderTensor, name: str, heads: dict[str, int]) -> torch.Tensor:
    """A tensor of the gguf package's reader by its formulas, rounded once where it is quantised."""
    kind = found.tensor_type
    values = np.asarray(gguf.quants.dequantize(found.data, kind), np.float32)
    for part, count in heads.items():
        if part in name:
            values = values.reshape(count, -1, 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
    wide = torch.tensor(values)
    return wide if kind in PLAIN else wide.to(torch.bfloat16).float()


@pytest.mark.parametrize("kind", [*PLAIN, *BLOCKS_OF_32, *BLOCKS_OF_256], ids=lambda kind: kind.name)
def test_numbers_are_those_of_the_packages_formulas(tmp_path: Path, kind: Type) -> None:
    folder, path = written(tmp_path, "llama", kind)
    spec = read_target_spec(folder)
    read = open_checkpoint(resolve_folder(path))
    config = json.loads((folder / "config.json").read_text())
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    theirs = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    for name, shape in model_shapes(spec).items():
        assert torch.equal(read.read(name, shape, torch.float32), widened(theirs[gguf_name(name)], name, heads)), name


@pytest.mark.parametrize("kind", [Type.Q8_0, Type.Q4_1, Type.Q4_K], ids=lambda kind: kind.name)
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_the_saved_twin(tmp_path: Path, family: str, kind: Type) -> None:
    folder, path = written(tmp_path, family, kind)
    described = resolve_folder(path)
    tensors = open_checkpoint(described)
    shapes = model_shapes(read_target_spec(described))
    twin = {name: tensors.read(name, shape, torch.bfloat16) for name, shape in shapes.items()}
    save_file(twin, folder / SINGLE_FILE)
    (folder / "manifest.sha256").unlink()
    ids = torch.randint(2, 300, (24,), generator=torch.Generator().manual_seed(3))
    logits = Oracle(path).logits(ids.tolist())
    assert torch.equal(logits, Oracle(folder).logits(ids.tolist()))
    assert torch.allclose(logits, _transformers(folder, ids), atol=1e-5)


def _transformers(folder: Path, ids: torch.Tensor) -> torch.Tensor:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    with torch.no_grad():
        return torch.as_tensor(model(ids.unsqueeze(0)).logits[0])


@pytest.mark.parametrize("family", ["qwen3", "gemma3_text"])
def test_a_target_is_made_of_a_file(tmp_path: Path, family: str) -> None:
    folder, path = written(tmp_path, family, Type.F32)
    made, own = load_target(path), load_target(folder)
    assert torch.equal(made.embed_VD, own.embed_VD) and made.spec == own.spec
    assert made.lm_head_VD is made.embed_VD


def test_a_worker_takes_the_folder_that_describes_a_file(tmp_path: Path) -> None:
    _, path = written(tmp_path, "qwen3", Type.Q8_0)
    described = resolve_folder(path)
    refuse(str(described))
    assert Source(str(described)).described == resolve_folder(described) == described


def test_revisions_differ_between_files_and_are_kept_between_loads(tmp_path: Path) -> None:
    _, path = written(tmp_path, "qwen3", Type.F32)
    path.write_bytes(path.read_bytes() + bytes(-path.stat().st_size % 4))
    first = open_checkpoint(resolve_folder(path)).revision
    assert open_checkpoint(resolve_folder(path)).revision == first
    tensor = read_gguf(path).tensors["blk.1.ffn_up.weight"]
    numbers = np.fromfile(path, np.float32)  # of one head, as a finetune has
    numbers[tensor.start // 4 : (tensor.start + tensor.nbytes) // 4] *= 2
    numbers.tofile(path)
    assert (tuned := open_checkpoint(resolve_folder(path)).revision) != first
    written(tmp_path, "qwen3", Type.Q8_0)
    assert open_checkpoint(resolve_folder(path)).revision not in (first, tuned)


def test_what_is_not_finite_is_refused(tmp_path: Path) -> None:
    _, path = written(tmp_path, "qwen3", Type.F32)
    place = read_gguf(path).tensors["blk.1.ffn_up.weight"].start
    with path.open("r+b") as file:
        file.seek(place)
        file.write(np.float32("nan").tobytes())
    with pytest.raises(ModelError, match=r"model.gguf: tensor model.layers.1.mlp.up_proj.weight holds NaN"):
        load_target(path)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path / "own", 5, SMALL).target
    tensors = load_file(folder / SINGLE_FILE)
    tensors.pop("model.layers.1.mlp.down_proj.weight")
    save_file(tensors, folder / SINGLE_FILE)
    write_gguf(tmp_path / "model.gguf", folder)
    with pytest.raises(ModelError, match=r"model.gguf: tensor model.layers.1.mlp.down_proj.weight is missing"):
        load_target(tmp_path / "model.gguf")
