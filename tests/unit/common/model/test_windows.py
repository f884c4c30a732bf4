"""Layers with a window see its tokens alone, at any width, after rejections at its edge, and whatever is below it."""

import pytest
import torch
from torch import Tensor

from services.common.kernels.span_attention import Mask, plan_span, seen_within
from services.common.model import Target, load_target
from services.common.model.states.states import Part, Rows, SequenceStates
from tests.support.tiny_checkpoints import TinyShape, write_tiny
from tests.unit.common.model.pairs import BLOCK_SIZE, ids_like, poisoned_states, span_at, tables

WINDOW, LENGTH, COLUMNS = 10, 44, 12
SLIDING = "sliding_attention"


def made(folder: str, tmp_path_factory: pytest.TempPathFactory, changes: dict[str, object]) -> Target:
    shape = TinyShape(layers=4, window=WINDOW)
    pair = write_tiny(tmp_path_factory.mktemp(folder), 1, shape, std=0.25, family="gemma3_text", changes=changes)
    return load_target(pair.target, torch.float64)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Target:
    return made("mixed", tmp_path_factory, {})


@pytest.fixture(scope="module")
def sliding(tmp_path_factory: pytest.TempPathFactory) -> Target:
    """All of its layers slide."""
    return made("sliding", tmp_path_factory, {"layer_types": [SLIDING] * 4})


def fed(target: Target, states: SequenceStates, ids_T: Tensor, cuts: list[int], rejected: int = 0) -> Tensor:
    """Hidden states of a sequence fed in spans, each beside a longer neighbour and with rejected rows at its end."""
    table_BN = tables([COLUMNS, COLUMNS], COLUMNS)
    found, start = [], 0
    for width in cuts:
        wrong = ids_like(rejected, seed=start + 9)
        own = torch.cat((ids_T[start : start + width], wrong))
        other = ids_like(len(own), seed=start)
        rows = span_at(table_BN, [start, min(start + 1, 2)], len(own))
        hidden_TD, _ = target.forward(torch.cat((own, other)), rows, states)
        found.append(hidden_TD[:width])
        start += width
    return torch.cat(found)


@pytest.mark.parametrize(("width", "rejected"), [(1, 0), (1, 3), (4, 0), (4, 4), (11, 1), (22, 0)])
def test_rows_are_the_same_at_any_width_and_after_rejections(target: Target, width: int, rejected: int) -> None:
    ids_T = ids_like(LENGTH)
    whole_TD = fed(target, poisoned_states(target), ids_T, [LENGTH])
    parts_TD = fed(target, poisoned_states(target), ids_T, [width] * (LENGTH // width), rejected)
    torch.testing.assert_close(parts_TD, whole_TD, rtol=1e-12, atol=1e-12)


def test_a_token_beyond_all_windows_changes_nothing_and_one_at_the_edge_does(sliding: Target) -> None:
    """In four layers a row sees four windows, less the tokens that they share."""
    seen = 4 * (WINDOW - 1)
    ids_T = ids_like(LENGTH)
    hidden_TD = fed(sliding, poisoned_states(sliding), ids_T, [LENGTH])
    for place, same in ((LENGTH - 2 - seen, True), (LENGTH - 1 - seen, False)):
        other_T = ids_T.clone()
        other_T[place] = (ids_T[place] + 1) % 320
        other_TD = fed(sliding, poisoned_states(sliding), other_T, [LENGTH])
        assert torch.equal(other_TD[-1], hidden_TD[-1]) is same


@pytest.mark.parametrize("length", [WINDOW - 1, WINDOW, 21])
def test_what_is_below_the_window_of_the_first_row_may_be_lost(sliding: Target, length: int) -> None:
    states, ids_T, table_BN = poisoned_states(sliding), ids_like(length + 3), tables([COLUMNS], COLUMNS)
    sliding.forward(ids_T[:length], span_at(table_BN, [0], length), states)
    rows = span_at(table_BN, [length], 3)
    expected_TD, _ = sliding.forward(ids_T[length:], rows, states)
    for place in range(length - WINDOW + 1):
        states.paged[0][:, :, table_BN[0, place // BLOCK_SIZE].long(), place % BLOCK_SIZE] = float("nan")
    lost_TD, _ = sliding.forward(ids_T[length:], rows, states)
    assert torch.equal(lost_TD, expected_TD)


def test_rows_of_padding_see_what_the_last_real_one_sees() -> None:
    """A chunk whose rows are mostly padding, wider than the window: no row sees nothing, which would be NaN."""
    span = plan_span(tables([4], 4), torch.tensor([3]), 8, BLOCK_SIZE, valid_B=torch.tensor([2]))
    bias_B1WT = seen_within(span, 2).bias_B1WT
    assert bias_B1WT is not None
    assert (bias_B1WT[0, 0] == 0).tolist() == [[True, True, False]] + [[False, True, True]] * 7


def test_rows_of_a_tree_see_their_branch_and_the_window_before_it() -> None:
    mask = Mask(ancestors_BW=torch.tensor([[0b001, 0b011, 0b101]]), depths_BW=torch.tensor([[0, 1, 1]]))
    span = plan_span(tables([4], 4), torch.tensor([6]), 3, BLOCK_SIZE, mask=mask)
    seen = seen_within(span, 4)
    assert seen.bias_B1WT is not None
    # Places from 3 on: three of the context, and three rows of which the last two stand at one position.
    assert (seen.bias_B1WT[0, 0] == 0).int().tolist() == [
        [1, 1, 1, 1, 0, 0],
        [0, 1, 1, 1, 1, 0],
        [0, 1, 1, 1, 0, 1],
    ]


def test_groups_have_keys_and_values_of_their_own_under_the_same_blocks(target: Target) -> None:
    states = target.new_states(7, BLOCK_SIZE)
    assert [tuple(kv.shape) for kv in states.paged] == [(2, 2, 7, BLOCK_SIZE, 2, 16)] * 2
    assert [len(layer) for layer in states.layers] == [1] * 4
    assert states.tensors == states.paged
    sizes = SequenceStates.sizes(target.spec, 8)
    assert sizes.per_token == sum(kv.nbytes for kv in states.paged) // (7 * BLOCK_SIZE)


def test_rows_of_several_spans_are_seen_group_by_group(target: Target) -> None:
    parts = [span_at(tables([COLUMNS], COLUMNS), [at], width).parts[0] for at, width in ((0, 5), (17, 3))]
    rows = Rows(*(Part(part.span, part.rows_B) for part in parts)).within([0, WINDOW])
    assert [view.mask.window for view in rows.views] == [0, 0, WINDOW, WINDOW]
    assert rows.views[0] is parts[0].span
    assert rows.within([0]) is rows
