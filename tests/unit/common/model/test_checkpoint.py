"""Damaged and foreign checkpoints: each is refused by an error that names the file and what is wrong in it."""

import json
import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from services.common.model import ModelError, load_block, load_target
from services.common.model.drafters.context import load_context
from services.common.model.files import checkpoint
from services.common.model.files.checkpoint import is_finite, resolve_folder
from services.common.model.files.manifest import MANIFEST_FILE, verify_manifest, write_manifest
from tests.support.tiny_checkpoints import write_tiny

WEIGHTS = "model.safetensors"
EMBED = "model.embed_tokens.weight"
GATE = "model.layers.1.mlp.gate_proj.weight"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    write_tiny(folder)
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A private copy of the target's checkpoint."""
    return Path(shutil.copytree(original / "target", tmp_path / "target"))


def edit(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS)
    write_manifest(folder)


def shard(folder: Path, parts: int = 3) -> None:
    tensors = load_file(folder / WEIGHTS)
    weight_map = {name: f"model-{index % parts:05}.safetensors" for index, name in enumerate(sorted(tensors))}
    for file in sorted(set(weight_map.values())):
        save_file({name: tensors[name].clone() for name in weight_map if weight_map[name] == file}, folder / file)
    (folder / WEIGHTS).unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    write_manifest(folder)


def set_bits(folder: Path, offset: int, mask: int = 0x10) -> None:
    data = bytearray((folder / WEIGHTS).read_bytes())
    data[offset] ^= mask
    (folder / WEIGHTS).write_bytes(bytes(data))


def test_shards_hold_the_same_model(folder: Path, original: Path) -> None:
    shard(folder)
    assert torch.equal(load_target(folder).embed_VD, load_target(original / "target").embed_VD)


def test_a_flipped_bit_is_found_by_the_manifest(folder: Path) -> None:
    set_bits(folder, -1000)
    with pytest.raises(ModelError, match=r"model\.safetensors: sha256 differs"):
        load_target(folder)


def test_a_truncated_file_is_named(folder: Path) -> None:
    path = folder / WEIGHTS
    path.write_bytes(path.read_bytes()[:-100])
    (folder / MANIFEST_FILE).unlink()
    with pytest.raises(ModelError, match=r"model\.safetensors: is not a complete safetensors file"):
        load_target(folder)


@pytest.mark.parametrize("size", [0, 4, 40])
def test_a_stump_is_refused(folder: Path, size: int) -> None:
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:size])
    write_manifest(folder)
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        load_target(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_tensor_that_is_not_finite_is_named(folder: Path, value: float) -> None:
    edit(folder, lambda tensors: tensors[GATE].view(-1).__setitem__(77, value))
    with pytest.raises(ModelError, match=r"model\.layers\.1\.mlp\.gate_proj\.weight holds NaN or infinity"):
        load_target(folder)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_number_that_is_not_finite_is_found_wherever_it_stands(dtype: torch.dtype) -> None:
    """Processors compare many numbers at a time, and a NaN is neither less nor more than others."""
    assert is_finite(torch.empty(0, dtype=dtype))
    for size in (*range(1, 70), 1025):
        numbers = torch.randn(size).to(dtype)
        assert is_finite(numbers)
        for place in {*range(min(size, 70)), size - 1}:
            for odd in (float("nan"), float("inf"), -float("inf")):
                assert not is_finite(numbers.index_fill(0, torch.tensor([place]), odd)), (size, place, odd)


def test_a_value_beyond_the_range_of_the_type_served_is_named(folder: Path) -> None:
    """The largest float32 rounds to infinity in bfloat16."""
    edit(folder, lambda tensors: tensors[GATE].view(-1).__setitem__(77, torch.finfo(torch.float32).max))
    with pytest.raises(ModelError, match=r"gate_proj\.weight holds a value beyond the range of torch\.bfloat16"):
        load_target(folder, torch.bfloat16)
    assert load_target(folder).dtype == torch.float32


def test_a_head_beside_a_tied_embedding_must_be_equal(folder: Path) -> None:
    plain = load_target(folder)
    edit(folder, lambda tensors: tensors.update({"lm_head.weight": tensors[EMBED].clone()}))
    tied = load_target(folder)
    assert tied.lm_head_VD is tied.embed_VD
    assert torch.equal(tied.embed_VD, plain.embed_VD)
    edit(folder, lambda tensors: tensors["lm_head.weight"].view(-1).__setitem__(5, 0.5))
    with pytest.raises(ModelError, match=r"lm_head\.weight differs from model\.embed_tokens\.weight"):
        load_target(folder)


def test_tables_of_frequencies_are_left_alone_and_told_once(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    names = ("model.layers.0.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq")
    edit(folder, lambda tensors: tensors.update({name: torch.ones(8) for name in names}))
    with caplog.at_level(logging.INFO):
        load_target(folder)
    (told,) = (record.getMessage() for record in caplog.records if "tensors have no effect" in record.getMessage())
    assert all(name in told for name in names)


def test_a_missing_tensor_is_named(folder: Path) -> None:
    edit(folder, lambda tensors: tensors.pop(GATE))
    with pytest.raises(ModelError, match=r"model\.layers\.1\.mlp\.gate_proj\.weight is missing"):
        load_target(folder)


def test_a_tensor_of_another_shape_is_named(folder: Path) -> None:
    edit(folder, lambda tensors: tensors.update({GATE: tensors[GATE].T.contiguous()}))
    with pytest.raises(ModelError, match=r"gate_proj\.weight has shape \(32, 64\), expected \(64, 32\)"):
        load_target(folder)


def test_an_integer_tensor_is_refused(folder: Path) -> None:
    edit(folder, lambda tensors: tensors.update({GATE: tensors[GATE].to(torch.int32)}))
    with pytest.raises(ModelError, match="has dtype"):
        load_target(folder)


def test_a_tensor_of_another_architecture_is_named(folder: Path) -> None:
    edit(folder, lambda tensors: tensors.update({"model.layers.0.self_attn.q_proj.bias": torch.zeros(64)}))
    with pytest.raises(ModelError, match=r"q_proj\.bias is not part of this architecture"):
        load_target(folder)


def test_an_index_that_disagrees_with_its_shards_is_refused(folder: Path) -> None:
    shard(folder)
    index = folder / "model.safetensors.index.json"
    values = json.loads(index.read_text())
    values["weight_map"][GATE] = (
        "model-00000.safetensors" if "00000" not in values["weight_map"][GATE] else "model-00001.safetensors"
    )
    index.write_text(json.dumps(values))
    write_manifest(folder)
    with pytest.raises(ModelError, match="but not in the file"):
        load_target(folder)


def test_shards_are_opened_once_in_whatever_order_their_tensors_lie(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the tables of a mixture's experts each opening takes milliseconds, and there are tens of thousands."""
    shard(folder, 5)
    write_manifest(folder)
    opened: list[Path] = []

    def counted(path: Path, framework: str) -> object:
        opened.append(path)
        return safe_open(path, framework=framework)

    monkeypatch.setattr(checkpoint, "safe_open", counted)
    load_target(folder)
    assert len(opened) == 2 * 5, "one looks what is in it"
    monkeypatch.setattr(checkpoint, "_MOST_OPEN", 2)
    opened.clear()
    load_target(folder)
    assert len(opened) > 2 * 5, "no more are open than may be"


def test_a_missing_shard_is_named(folder: Path) -> None:
    shard(folder)
    (folder / "model-00001.safetensors").unlink()
    with pytest.raises(ModelError, match=r"model-00001\.safetensors"):
        load_target(folder)


@pytest.mark.parametrize("text", ["{", "[]", '{"weight_map": 3}', '{"weight_map": ' + "[" * 200_000])
def test_a_malformed_index_is_refused(folder: Path, text: str) -> None:
    (folder / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ModelError, match=r"index\.json"):
        load_target(folder)


@pytest.mark.parametrize("file", ["", ".", "config.json", "x" * 5000 + ".safetensors", "a\0.safetensors"])
def test_an_index_names_files_of_safetensors(folder: Path, file: str) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {GATE: file}}))
    with pytest.raises(ModelError, match=r"index\.json: names .* which is no name of a \*\.safetensors file") as caught:
        load_target(folder)
    assert len(str(caught.value)) < 400 + len(str(folder))


def test_scales_of_stacked_experts_are_told_with_what_to_take(folder: Path) -> None:
    edit(folder, lambda tensors: tensors.update({"model.layers.0.mlp.experts.down_proj_scale_inv": torch.ones(1)}))
    with pytest.raises(ModelError, match="take a file that has a tensor for each expert"):
        load_target(folder)


def test_products_in_one_tensor_are_told(folder: Path) -> None:
    def join(tensors: dict[str, torch.Tensor]) -> None:
        parts = [tensors.pop(f"model.layers.0.self_attn.{part}_proj.weight") for part in "qkv"]
        tensors["model.layers.0.self_attn.qkv_proj.weight"] = torch.cat(parts)

    edit(folder, join)
    with pytest.raises(ModelError, match=r"missing, and .*qkv_proj is there: take a file that has its products apart"):
        load_target(folder)


def test_manifest_must_list_what_is_read_and_be_well_formed(folder: Path) -> None:
    manifest = folder / MANIFEST_FILE
    lines = manifest.read_text().splitlines(keepends=True)
    manifest.write_text("".join(line for line in lines if "config.json" not in line or "tokenizer" in line))
    with pytest.raises(ModelError, match=r"config\.json is not listed"):
        load_target(folder)
    manifest.write_text("".join(lines) + "0" * 64 + "  ../secret\n")
    with pytest.raises(ModelError, match="line"):
        load_target(folder)
    manifest.write_text("".join(lines) + "0" * 64 + "  more.txt\n")
    with pytest.raises(ModelError, match=r"more\.txt: listed"):
        load_target(folder)
    manifest.write_text("".join(lines) + "0" * 64 + f"  {'x' * 300}\n")
    with pytest.raises(ModelError, match="cannot be read"):
        load_target(folder)


def test_a_changed_description_is_told_before_large_files_are_read(tmp_path: Path) -> None:
    """Files are read side by side, and one that differs ends the reading of all: 64 GiB would take half a minute."""
    (tmp_path / "config.json").write_text("{}")
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(1 << 36)
    lines = [f"{'0' * 64}  {name}\n" for name in ("config.json", "model.safetensors")]
    (tmp_path / MANIFEST_FILE).write_text("".join(lines))
    before = time.process_time()
    with pytest.raises(ModelError, match=r"config\.json: sha256 differs"):
        verify_manifest(tmp_path, ["config.json"])
    assert time.process_time() - before < 5


def test_a_finetune_with_the_same_tables_is_another_revision(folder: Path) -> None:
    (folder / MANIFEST_FILE).unlink()
    first = load_target(folder).revision
    tensors = load_file(folder / WEIGHTS)
    assert load_target(folder).revision == first
    save_file(tensors | {GATE: tensors[GATE] + 0.01}, folder / WEIGHTS, metadata={"format": "pt"})
    assert load_target(folder).revision != first


def test_revision_follows_the_contents(folder: Path) -> None:
    first = load_target(folder).revision
    edit(folder, lambda tensors: tensors[GATE].mul_(2))
    assert load_target(folder).revision != first
    (folder / MANIFEST_FILE).unlink()
    assert len(load_target(folder).revision) == len(first) == 64


def test_a_damaged_drafter_is_refused_by_both_halves(original: Path, tmp_path: Path) -> None:
    drafter = Path(shutil.copytree(original / "drafter", tmp_path / "drafter"))
    edit(drafter, lambda tensors: tensors.update({"fc.weight": tensors["fc.weight"][:, :64].contiguous()}))
    with pytest.raises(ModelError, match=r"fc\.weight has shape \(32, 64\), expected \(32, 96\)"):
        load_context(drafter, load_target(original / "target"))
    edit(drafter, lambda tensors: tensors.pop("hidden_norm.weight"))
    with pytest.raises(ModelError, match=r"hidden_norm\.weight is missing"):
        load_block(drafter)


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such folder"):
        resolve_folder(tmp_path / "nothing")
    with pytest.raises(ModelError, match="no such folder"):
        load_target("just-a-name")
