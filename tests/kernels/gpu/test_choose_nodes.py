"""The best tokens of a product, and the nodes that are chosen of them, by kernel and on a CPU."""

import pytest
import torch

from services.common.kernels.argmax_token import top
from services.common.kernels.choose_nodes import choose_nodes, kernel
from services.common.kernels.linear.reference import linear
from tests.kernels.gpu.devices import DEVICE, DTYPES, randn

CANDIDATES = 8


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [0, top.TOP_TILE])
def test_the_best_tokens_are_found_in_every_tile(columns: int, dtype: torch.dtype) -> None:
    """Some scores are equal, in a tile and across tiles, one is -0, one row has NaN."""
    vocab = 2 * top.TOP_TILE + 37
    rows, weight = randn(3, 32, dtype=dtype), randn(vocab, 32, seed=2, dtype=dtype)
    weight[5] = weight[7] = weight[2 * top.TOP_TILE] = 4 * rows[0]
    rows[2, 0] = float("nan")
    values, ids = top.top_of_product(rows, weight, CANDIDATES, columns=columns)
    scores = linear(rows.cpu(), weight.cpu()).float()
    order = scores.nan_to_num(-torch.inf).sort(dim=-1, descending=True, stable=True)
    assert values.dtype == torch.float32
    assert torch.isinf(values[2]).all()
    if dtype == torch.float32:
        torch.testing.assert_close(values[:2].cpu(), order.values[:2, :CANDIDATES], atol=1e-4, rtol=1e-5)
        assert torch.equal(ids[:2].cpu(), order.indices[:2, :CANDIDATES])
    assert ids[0, :3].tolist() == [5, 7, 2 * top.TOP_TILE]


@pytest.mark.parametrize(("groups", "count"), [(1, 8), (5, 8), (21, 16), (24, 32)])
def test_the_best_of_many_equals_are_the_lowest_tokens(groups: int, count: int) -> None:
    """Scores are whole numbers: most groups hold equals of the best. The last is cut, and there may be few groups."""
    vocab, generator = groups * top.GROUP - 3, torch.Generator().manual_seed(groups)
    scores = torch.randint(-4, 5, (5, vocab), generator=generator).float()
    scores[1], scores[2, : vocab - 2] = 2.0, -torch.inf
    scores[3, torch.randperm(vocab, generator=generator)[:9]] = 9.0
    for columns in (0, 3 * top.GROUP, top.TOP_TILE + 1):
        parts = scores.split(columns or vocab, 1)
        found = torch.empty((5, len(parts), count), dtype=torch.int64, device=DEVICE)
        values, tokens = torch.empty((5, count), device=DEVICE), torch.empty_like(found[:, 0])
        for piece, part in enumerate(parts):
            top._keep_best(part.contiguous().to(DEVICE), found, values, tokens, piece, piece * (columns or vocab))
        if len(parts) > 1:
            tokens = 0x7FFFFFFF - (found.flatten(1).sort(-1, descending=True).values[:, :count] & 0xFFFFFFFF)
        else:
            assert torch.equal(values.cpu(), scores.sort(dim=-1, descending=True).values[:, :count])
        expected = scores.sort(dim=-1, descending=True, stable=True).indices[:, :count]
        assert torch.equal(tokens.cpu(), expected), columns


@pytest.mark.parametrize(("positions", "befores", "count"), [(15, 1, 15), (1, 1, 12), (5, CANDIDATES, 15)])
def test_the_nodes_are_those_of_the_heap(positions: int, befores: int, count: int) -> None:
    """Scores in steps of a quarter are often equal."""
    generator = torch.Generator().manual_seed(count)
    ids = torch.randint(0, 1000, (5, positions, CANDIDATES), generator=generator)
    logits = torch.randn((5, positions, befores, CANDIDATES), generator=generator)
    scores = (4 * logits.log_softmax(-1)).round() / 4
    scores[1] = logits[1].log_softmax(-1)
    if befores > 1:
        scores[:, 0] = scores[:, 0, :1]
    tokens, parents = choose_nodes.reference(ids, scores, count)
    got, followed = kernel.choose_nodes(ids.to(DEVICE), scores.to(DEVICE), count)
    assert torch.equal(got.cpu(), tokens)
    assert torch.equal(followed.cpu(), parents)


def test_what_candidates_do_not_suffice_for_is_absent() -> None:
    """Of impossible ones, of ones that are no numbers, and of a short block."""
    ids, scores = torch.arange(2 * CANDIDATES).view(1, 2, -1), torch.zeros((1, 2, 1, CANDIDATES))
    scores[0, 0, 0, 1:], scores[0, 1, 0, 2:] = -torch.inf, torch.nan
    tokens, parents = kernel.choose_nodes(ids.to(DEVICE), scores.to(DEVICE), 5)
    assert tokens.tolist() == [[0, 8, 9, -1, -1]]
    assert parents.tolist() == [[0, 1, 1, 0, 0]]
