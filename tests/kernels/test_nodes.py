"""Rounds of nodes: reading a tree (I6), walking it against plain decoding, and keeping what its path has left."""

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from services.common.kernels.accept import End, Entrant, RoundResult, SlotParams, SlotState, accept
from services.common.kernels.nodes import MOST_NODES, Nodes, first_path, keep_path, read_nodes
from tests.kernels.plain_sampling import Plain
from tests.kernels.test_accept import CONTEXT, SLOTS, VOCAB, assert_state, noise_of, random_logits, random_params

SEED = 20261129
BLOCK = 4


def read(
    parents: Sequence[Sequence[int]], blocks: Sequence[int] = (1, 2, 3), length: int = 3
) -> tuple[Nodes, torch.Tensor]:
    """Read the trees of slots 1 and 0 whose tables have these blocks."""
    width = len(parents[0]) + 1
    nodes, drafts_BK = Nodes.allocate(2, width), torch.full((2, width - 1), 9)
    table_SN = torch.tensor([blocks, blocks], dtype=torch.int32)
    read_nodes(
        torch.tensor(parents, dtype=torch.int32), torch.tensor([1, 0]), table_SN, torch.tensor([length] * 2), BLOCK,
        drafts_BK, nodes,
    )  # fmt: skip
    return nodes, drafts_BK


def test_a_tree_is_read_through_its_slot_with_depths_and_ancestors() -> None:
    nodes, drafts_BK = read([[0, 1, 2, 3], [0, 0, 1, 3]])
    assert nodes.parents_BK.tolist() == [[0, 0, 1, 3], [0, 1, 2, 3]]
    assert nodes.depths_BW.tolist() == [[0, 1, 1, 2, 3], [0, 1, 2, 3, 4]]
    assert nodes.ancestors_BW[0].tolist() == [0b1, 0b11, 0b101, 0b1011, 0b11011]
    assert nodes.ancestors_BW[1].tolist() == [0b1, 0b11, 0b111, 0b1111, 0b11111]
    assert (drafts_BK == 9).all()


@pytest.mark.parametrize("bad", [-1, 2, 3, 2**31 - 1, -(2**31)])
def test_a_tree_whose_parent_stands_behind_its_node_has_no_drafts(bad: int) -> None:
    nodes, drafts_BK = read([[0, 0, 0], [0, bad, 0]])
    assert drafts_BK.tolist() == [[-1] * 3, [9] * 3]
    assert nodes.parents_BK.tolist() == [[0, 1, 2], [0, 0, 0]]


@pytest.mark.parametrize(("blocks", "length", "left"), [((1, 2, 0), 3, 4), ((1, 2, 3), 7, 4), ((1, 2, 3), 10, 1)])
def test_a_node_without_a_place_is_absent(blocks: tuple[int, ...], length: int, left: int) -> None:
    _, drafts_BK = read([[0] * 5, [0] * 5], blocks, length)
    assert drafts_BK.tolist() == [[9] * left + [-1] * (5 - left)] * 2


def test_a_tree_has_as_many_nodes_as_a_word_has_bits() -> None:
    widest = Nodes.allocate(1, MOST_NODES)
    assert widest.ancestors_BW[0].tolist() == [(2 << row) - 1 for row in range(MOST_NODES)]
    with pytest.raises(ValueError, match="64 nodes"):
        Nodes.allocate(1, MOST_NODES + 1)


def test_a_grammar_walks_the_path_of_first_children() -> None:
    assert first_path([0, 0, 1, 1, 3], [5, 6, 7, 8, 9]) == [1, 3, 5]
    assert first_path([0, 1, 2], [5, -1, 7]) == [1], "nothing follows an absent draft"
    assert first_path([], []) == []


def random_tree(rng: random.Random, width: int) -> list[int]:
    """Return parents of a chain, a star, or anything between."""
    near = rng.random()
    return [row if rng.random() < near else rng.randrange(row + 1) for row in range(width - 1)]


def grown(
    rng: random.Random, plain: Plain, logits: np.ndarray, noise: np.ndarray, parents: Sequence[int]
) -> tuple[list[int], list[int], End]:
    """Return drafts of a tree that are often right, and what plain decoding commits on the way through it."""
    chosen: dict[int, int] = {}
    outputs = {0: list(plain.output)}
    drafts: list[int] = []
    start = len(plain.output)
    for row, parent in enumerate([0, *parents]):
        if row:
            drafts.append(chosen[parent] if rng.random() < 0.6 else rng.randrange(-1, VOCAB))
            outputs[row] = [*outputs[parent], drafts[-1]]
        twin = Plain(plain.params, plain.prompt, outputs[row], plain.allowed)
        chosen[row] = twin.choose(logits[row], noise[len(outputs[row]) - start])
    made: list[int] = []
    row, limit = 0, plain.params.draft_limit
    while True:
        made.append(chosen[row])
        end = plain.commit(chosen[row])
        children = [place + 1 for place, parent in enumerate(parents) if parent == row and drafts[place] == chosen[row]]
        if end or not children or (limit is not None and len(made) > limit):
            return drafts, made, end
        row = children[0]


def one_case(rng: random.Random, generator: np.random.Generator) -> int:
    """Run requests to their ends in rounds of trees; return how many rows of them there were."""
    state = SlotState.allocate(SLOTS, VOCAB, CONTEXT, width=8)
    requests: dict[int, Plain] = {}
    for slot in rng.sample(range(SLOTS), 4):
        plain = Plain(replace(random_params(rng), masked=False), [rng.randrange(VOCAB) for _ in range(5)])
        state.admit(Entrant(slot, plain.params, plain.prompt))
        requests[slot] = plain
    rounds = 0
    while requests:
        width = rng.choice((2, 4, 8))
        rows = [*requests, SLOTS]
        logits, nodes = random_logits(generator, len(rows), width), Nodes.allocate(len(rows), width)
        drafts, expected = np.full((len(rows), width - 1), -1), []
        for index, slot in enumerate(requests):
            plain, parents = requests[slot], random_tree(rng, width)
            noise = noise_of(plain.params, len(plain.prompt) + len(plain.output), width)
            drafts[index], made, end = grown(rng, plain, logits[index], noise, parents)
            fill(nodes, index, parents)
            expected.append((made, end))
        result = RoundResult.allocate(len(rows), width, trees=True)
        accept(torch.from_numpy(logits), torch.from_numpy(drafts), torch.tensor(rows), state, result, nodes=nodes)
        for index, (slot, (made, end)) in enumerate(zip(list(requests), expected, strict=True)):
            assert result.tokens_BW[index].tolist() == made + [-1] * (width - len(made))
            assert (int(result.count_B[index]), int(result.end_B[index])) == (len(made), end)
            assert_state(state, slot, requests[slot])
            if end:
                del requests[slot]
        rounds += len(expected)
    return rounds


def fill(nodes: Nodes, index: int, parents: Sequence[int]) -> None:
    """Write one tree, as `read_nodes` does."""
    nodes.parents_BK[index] = torch.tensor(parents)
    for row, parent in enumerate(parents, start=1):
        nodes.depths_BW[index, row] = nodes.depths_BW[index, parent] + 1
        nodes.ancestors_BW[index, row] = nodes.ancestors_BW[index, parent] | 1 << row


def test_a_thousand_random_trees_equal_plain_decoding() -> None:
    rng, generator = random.Random(SEED), np.random.default_rng(SEED)
    rows = 0
    while rows < 1_000:
        rows += one_case(rng, generator)


def test_scores_are_told_in_the_order_of_the_path() -> None:
    nodes, result = Nodes.allocate(1, 4), RoundResult.allocate(1, 4, trees=True)
    fill(nodes, 0, [0, 0, 2])
    logits = torch.zeros(1, 4, VOCAB)
    for row, token in ((0, 6), (1, 1), (2, 3), (3, 8)):
        logits[0, row, token] = 5.0
    state = SlotState.allocate(1, VOCAB, CONTEXT)
    state.admit(Entrant(0, SlotParams(max_tokens=50, context_limit=CONTEXT), [1, 2]))
    accept(logits, torch.tensor([[4, 6, 3]]), torch.tensor([0]), state, result, nodes=nodes)
    assert result.path_BW is not None
    assert result.path_BW.tolist() == [[0, 2, 3, 3]]
    assert result.tokens_BW.tolist() == [[6, 3, 8, -1]]
    assert result.by_depth(logits)[0].argmax(-1).tolist()[:3] == [6, 3, 8]
    assert result.by_row(result.tokens_BW).tolist() == [[6, -1, 3, 8]]
    assert result.by_depth(result.by_row(result.tokens_BW))[0, :3].tolist() == [6, 3, 8]
    assert (result.accepted_B.tolist(), result.drafted_B.tolist()) == ([2], [3])


@pytest.mark.parametrize(("parents", "made"), [([0, 0, 2], [6, 6, 8]), ([0, 1, 0], [6])])
def test_a_tree_that_changed_since_its_masks_were_made_is_not_accepted(parents: list[int], made: list[int]) -> None:
    """Masks were made for rows 2 and 3, one behind the other; tokens alone do not show that they are no longer so."""
    nodes, result = Nodes.allocate(1, 4), RoundResult.allocate(1, 4, trees=True)
    fill(nodes, 0, parents)
    logits = torch.zeros(1, 4, VOCAB)
    for row, token in ((0, 6), (1, 1), (2, 6), (3, 8)):
        logits[0, row, token] = 5.0
    state = SlotState.allocate(1, VOCAB, CONTEXT, width=4)
    state.admit(Entrant(0, SlotParams(max_tokens=50, context_limit=CONTEXT, masked=True), [1, 2]))
    state.mask_SWN[0] = (1 << VOCAB) - 1
    state.walked_SK[0] = torch.tensor([-1, 6, 6])
    accept(logits, torch.tensor([[4, 6, 6]]), torch.tensor([0]), state, result, nodes=nodes)
    assert result.tokens_BW[0, : len(made)].tolist() == made
    assert int(result.count_B[0]) == len(made)


def test_what_a_path_has_left_moves_to_its_positions() -> None:
    """Of two sequences; the second has a path of rows in order, of which nothing moves."""
    kv, draft = torch.arange(40.0).view(1, 1, 10, 4, 1, 1).repeat(3, 2, 1, 1, 1, 1), torch.zeros(2, 2, 10, 4, 1, 1)
    before = kv.clone()
    slots_T = torch.tensor([7, 12, 13, 14, 15, 20, 21, 22, 23, 28])
    path_BW = torch.tensor([[0, 2, 4, 3, 4], [0, 1, 2, 3, 4]])
    keep_path(path_BW, torch.tensor([3, 5]), slots_T, [kv, draft])
    flat, was = (each.flatten(2, 3)[..., 0, 0] for each in (kv, before))
    moved = {12: 13, 13: 15}
    assert flat[2, 1].tolist() == [float(was[2, 1, moved.get(place, place)]) for place in range(40)]
    assert (flat == flat[:1, :1]).all(), "all layers, keys and values alike"
