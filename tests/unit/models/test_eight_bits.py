"""Drafters in eight bits: what is written means what was trained, to who trains and to who serves."""

from pathlib import Path

import pytest
import torch

from models.training.foreign.frozen import load_frozen
from models.training.foreign.kinds import DFlash2, Form
from models.training.foreign.learning import Learner
from models.training.foreign.publish import publish, published
from models.training.settings import MODELS
from services.common.model.drafters import checkpoint_shapes, read_drafter_spec
from services.common.model.files.formats import open_checkpoint
from services.common.model.files.manifest import verify_manifest
from tests.unit.models.foreign_pair import OPTIONS, shape_of, target_folder

SHIPPED = MODELS / "smollm2-dflash2"
MOST_MB = 40


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One drafter, plain and in eight bits."""
    folder = tmp_path_factory.mktemp("drafter")
    target = load_frozen(str(target_folder(folder / "target", "llama")), "cpu")
    drafter = Learner(target, shape_of(target), OPTIONS, Form("dflash2", 4)).folded()
    assert isinstance(drafter, DFlash2)
    publish(drafter, folder / "plain")
    publish(drafter, folder / "packed", packed=True)
    return folder / "plain", folder / "packed"


def test_numbers_are_the_trained_ones_to_half_a_step_and_a_rounding(folders: tuple[Path, Path]) -> None:
    plain, packed = map(published, folders)
    assert plain.keys() == packed.keys()
    changed = {name for name, weight in plain.items() if not torch.equal(weight, packed[name])}
    assert changed == {name for name in plain if name.endswith("_proj.weight")}
    for name in changed:
        step_F1 = plain[name].abs().amax(1, keepdim=True) / 127
        rounded_FD = plain[name].abs() / 256
        assert ((plain[name] - packed[name]).abs() <= 0.51 * step_F1 + rounded_FD).all(), name


def test_who_serves_reads_the_numbers_that_who_trains_reads(folders: tuple[Path, Path]) -> None:
    packed, served = published(folders[1]), open_checkpoint(folders[1])
    for name, shape in checkpoint_shapes(read_drafter_spec(folders[1])).items():
        assert torch.equal(served.read(name, shape, torch.float32), packed[name]), name


def test_the_second_drafter_of_smollm2_is_whole_and_small() -> None:
    spec = read_drafter_spec(SHIPPED)
    assert (spec.kind, len(spec.layers), spec.most_drafts, spec.block_for(7)) == ("dflash2", 5, 15, 8)
    shards = sorted(file.name for file in SHIPPED.glob("*.safetensors"))
    assert verify_manifest(SHIPPED, ["config.json", "model.safetensors.index.json", *shards]) is not None
    assert sum(file.stat().st_size for file in SHIPPED.iterdir()) <= MOST_MB * 10**6
