"""Every kind and layout of drafters before anything starts: right ones pass, damage is told with what to take."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from services.common.model.drafters import ANCHORED
from services.common.preflight.checks import Asked, problems
from tests.support.tiny_chains import write_eagle3
from tests.support.tiny_checkpoints import DRAFTERS, TinyPair, TinyShape, write_tiny
from tests.support.tiny_kinds import PAIRS

SHAPE = TinyShape()
OWN = sorted(set(PAIRS) - {"mtp"})
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
DAMAGES: dict[str, Callable[[Tensor], Tensor | None]] = {
    "gone": lambda tensor: None,
    "longer": lambda tensor: torch.cat((tensor, tensor[:1])),
    "of another type": lambda tensor: tensor.to(torch.float32 if tensor.dtype == torch.int64 else torch.int64),
}
SAMPLE = 3


@pytest.fixture(params=OWN)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> TinyPair:
    made = PAIRS[request.param](tmp_path, 3, SHAPE)
    (made.drafter / "manifest.sha256").unlink()
    return made


def line_of(pair: TinyPair, anchored: str = "auto") -> str:
    found = problems(Asked(str(pair.target), str(pair.drafter), anchored, device="cpu"))
    return next((one.line for one in found if one.fatal), "")


def another(pair: TinyPair, name: str, tensors: dict[str, Tensor]) -> TinyPair:
    """The same drafter with other tensors, in a folder of its own: headers are kept by path."""
    folder = pair.drafter.parent / name
    folder.mkdir()
    (folder / "config.json").write_bytes((pair.drafter / "config.json").read_bytes())
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    return TinyPair(pair.target, folder)


@pytest.mark.parametrize("kind", sorted(PAIRS))
def test_a_right_pair_passes(kind: str, tmp_path: Path) -> None:
    assert not line_of(PAIRS[kind](tmp_path, 3, SHAPE))


def test_damage_of_a_tensor_is_told_by_its_name(pair: TinyPair, full: bool) -> None:
    tensors = {name: one for name, one in load_file(pair.drafter / WEIGHTS).items() if name != "t2d"}
    cases = [(name, how) for name in sorted(tensors) for how in DAMAGES]
    for name, how in cases if full else cases[::SAMPLE]:
        damaged = DAMAGES[how](tensors[name])
        kept = {one: tensor for one, tensor in tensors.items() if one != name}
        line = line_of(another(pair, f"{name} {how}", kept if damaged is None else kept | {name: damaged}))
        assert f"tensor {name} " in line and "take another drafter" in line, (name, how, line)


@pytest.mark.parametrize("damage", ["shard", "index", "map"])
def test_damage_of_shards_is_told_with_what_to_fetch(damage: str, pair: TinyPair) -> None:
    tensors, folder = load_file(pair.drafter / WEIGHTS), pair.drafter
    names, files = sorted(tensors), ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    halves = names[: len(names) // 2], names[len(names) // 2 :]
    (folder / WEIGHTS).unlink()
    for file, half in zip(files, halves, strict=True):
        save_file({name: tensors[name] for name in half}, folder / file, metadata={"format": "pt"})
    where = {name: file for file, half in zip(files, halves, strict=True) for name in half}
    if damage == "map":
        where[names[0]] = files[1]
    (folder / INDEX).write_text(json.dumps({"weight_map": where}))
    if damage != "map":
        (folder / (INDEX if damage == "index" else files[1])).unlink()
    line = line_of(pair)
    assert "fetch" in line and str(folder) in line, line


def test_a_drafter_in_the_place_of_its_model_is_told(pair: TinyPair) -> None:
    line = line_of(TinyPair(pair.drafter, pair.drafter))
    assert "is a drafter (" in line and "give it as --drafter" in line


@pytest.mark.parametrize("name", ["mask_embedding.pt", "mask_embedding"])
def test_masks_that_are_no_token_are_another_drafter(name: str, pair: TinyPair) -> None:
    if name.endswith(".pt"):
        (pair.drafter / name).write_bytes(b"PK")
    else:
        pair = another(pair, name, load_file(pair.drafter / WEIGHTS) | {name: torch.zeros(SHAPE.hidden)})
    line = line_of(pair)
    assert f"{name}: masks with an embedding of their own are not supported: take another drafter" in line


@pytest.mark.parametrize("word", ["true", "false"])
@pytest.mark.parametrize("kind", OWN)
def test_a_layout_is_said_of_kinds_that_have_two(kind: str, word: str, tmp_path: Path) -> None:
    line = line_of(PAIRS[kind](tmp_path, 3, SHAPE), word)
    if kind in ANCHORED or (word == "false" and kind in DRAFTERS):
        assert not line
    else:
        assert "sample_from_anchor cannot be said of" in line and "take auto" in line


def test_a_chain_that_names_no_layers_needs_a_target_that_has_the_usual_ones(tmp_path: Path) -> None:
    pair = write_eagle3(tmp_path / "deep", 3, SHAPE, eagle_config=None)
    assert not line_of(pair)
    shallow = write_tiny(tmp_path / "shallow", 3, SHAPE).target
    line = line_of(TinyPair(shallow, pair.drafter))
    assert "it names no layers to read, and a target of 4 has no usual ones: take a drafter" in line
