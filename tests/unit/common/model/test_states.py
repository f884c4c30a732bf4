"""The states of sequences: their size, their tensors, and what happens to them when a slot gets another request."""

from pathlib import Path

import pytest

from services.common.model import Target, load_target
from services.common.model.states.states import SequenceStates
from tests.support.tiny_checkpoints import write_tiny

BLOCKS, BLOCK_SIZE = 9, 4


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Target:
    return load_target(write_tiny(Path(tmp_path_factory.mktemp("pair"))).target)


def test_the_planned_bytes_are_those_allocated(target: Target) -> None:
    sizes = SequenceStates.sizes(target.spec, target.dtype.itemsize)
    held = sum(tensor.nbytes for tensor in target.new_states(BLOCKS, BLOCK_SIZE).tensors)
    assert held == sizes.fixed + BLOCKS * BLOCK_SIZE * sizes.per_token
    assert sizes.per_slot == sizes.per_snapshot == 0, "blocks are found by the table of a request alone"


def test_codes_take_a_byte_a_number_and_one_a_head(target: Target) -> None:
    wide, sizes = (SequenceStates.sizes(target.spec, 2, coded=coded) for coded in (False, True))
    states = target.new_states(BLOCKS, BLOCK_SIZE, coded=True)
    assert sum(tensor.nbytes for tensor in states.tensors) == sizes.fixed + BLOCKS * BLOCK_SIZE * sizes.per_token
    size = target.spec.attention.head_dim
    assert sizes.per_token * 2 * size == wide.per_token * (size + 1)
    assert [len(layer) for layer in states.layers] == [2] * len(target.spec.layers)


def test_layers_are_views_of_the_tensors(target: Target) -> None:
    states = target.new_states(BLOCKS, BLOCK_SIZE)
    for index, (layer,) in enumerate(states.layers):
        layer.fill_(index + 1)
    assert all(bool((tensor != 0).all()) for tensor in states.tensors)
    assert len({layer.data_ptr() for (layer,) in states.layers}) == len(target.spec.layers)


def test_paged_keys_and_values_need_no_care(target: Target) -> None:
    """A slot that changes hands, and a state that is kept elsewhere."""
    states = target.new_states(BLOCKS, BLOCK_SIZE)
    for tensor in states.tensors:
        tensor.fill_(3)
    states.reset(0)
    states.save(0, place=0, folded=16)
    states.resume(0, place=0, folded=16)
    assert all(bool((tensor == 3).all()) for tensor in states.tensors)
    assert states.grid == 0, "a hit of any length will do"
