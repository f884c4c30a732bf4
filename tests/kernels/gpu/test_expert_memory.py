"""Experts in host memory: the bits of those on the device, before and after some of them change places."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from services.common.model import Target, load_target
from services.common.model.fields.errors import ModelError
from tests.kernels.gpu.devices import DEVICE, DTYPES
from tests.kernels.gpu.test_expert_model import EXPERTS, MODELS
from tests.kernels.gpu.test_hybrid_model import PLAIN, SHAPE, run
from tests.support.tiny_checkpoints import write_tiny

FAMILY = "qwen3_moe"
CUTS = ((5, 4, True), PLAIN)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = Path(tmp_path_factory.mktemp("experts"))
    shape = replace(SHAPE, tied=False)
    return write_tiny(where, 3, shape, std=0.25, family=FAMILY, changes=MODELS[FAMILY]).target


def bytes_of(target: Target, resident: int) -> int:
    """A budget for so many experts of each layer that has them, and a little more."""
    return sum(own.expert_bytes for own in target.mixtures) * resident + 7


def texts(target: Target) -> Tensor:
    return run(target, CUTS)[0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("resident", [1, 3])
def test_rows_have_the_bits_of_experts_on_the_device(folder: Path, dtype: torch.dtype, resident: int) -> None:
    whole = load_target(folder, dtype, DEVICE)
    expected = texts(whole)
    target = load_target(folder, dtype, DEVICE, expert_bytes=bytes_of(whole, resident))
    count = EXPERTS["num_experts"]
    for own in target.mixtures:
        assert own.cold is not None
        assert (own.cold.resident, len(own.cold.host[0])) == (resident, count - resident)
        assert [own.cold.is_cold(expert) for expert in range(count)] == [expert >= resident for expert in range(count)]
    assert torch.equal(texts(target), expected)
    hosts = sum(own.cold.nbytes for own in target.mixtures if own.cold)
    assert whole.weight_bytes - target.weight_bytes == hosts > 0


def test_experts_change_places_and_rows_keep_their_bits(folder: Path) -> None:
    """One after the other, there and back, and one that has moved moves again."""
    whole = load_target(folder, torch.float32, DEVICE)
    expected = texts(whole)
    target = load_target(folder, torch.float32, DEVICE, expert_bytes=bytes_of(whole, 2))
    for own in target.mixtures:
        assert own.cold is not None
        rooms = torch.empty_like(own.gate_up_EFD[0]), torch.empty_like(own.down_EDF[0])
        for cold, resident in ((2, 0), (0, 2), (3, 1)):
            before = own.cold.at_2E.clone()
            own.cold.exchange(cold, resident, rooms)
            assert not own.cold.is_cold(cold)
            assert own.cold.is_cold(resident)
            assert torch.equal(own.cold.at_2E[:, [cold, resident]], before[:, [resident, cold]])
        assert torch.equal(texts(target), expected)
        with pytest.raises(AssertionError, match="changes places"):
            own.cold.exchange(1, 4, rooms)


def test_uses_count_forwards_in_which_an_expert_has_rows(folder: Path) -> None:
    """One for each forward at most, whatever the number of rows, and none for padding."""
    target = load_target(folder, torch.float32, DEVICE)
    (own,) = target.mixtures
    run(target, ((17, 17, True),))
    assert own.uses_E.tolist() == [1] * len(own.uses_E), "seventeen rows choose every expert"
    run(target, (PLAIN, PLAIN))
    assert int(own.uses_E.sum()) == len(own.uses_E) + 2 * EXPERTS["num_experts_per_tok"]
    before = own.uses_E.clone()
    run(target, ((4, 0, True),))
    assert torch.equal(own.uses_E, before)


@pytest.mark.parametrize(("bytes_", "why"), [(10, "too few, one expert of each layer takes"), (1 << 40, "")])
def test_a_budget_holds_one_expert_at_least_and_all_at_most(bytes_: int, why: str, folder: Path) -> None:
    if why:
        with pytest.raises(ModelError, match=why):
            load_target(folder, torch.float32, DEVICE, expert_bytes=bytes_)
    else:
        target = load_target(folder, torch.float32, DEVICE, expert_bytes=bytes_)
        assert [own.cold for own in target.mixtures] == [None]


def test_a_dense_model_has_none(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path, 3, SHAPE).target
    with pytest.raises(ModelError, match="no experts"):
        load_target(folder, torch.float32, DEVICE, expert_bytes=1 << 20)
