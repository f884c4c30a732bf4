"""Which drafts become the nodes of a tree: the best paths, as the offline count takes them, whatever the kind."""

import itertools
import math
import random
from pathlib import Path

import pytest
import torch

from services.common.model.drafters.coupling import Coupling
from services.common.model.drafters.nodes import CANDIDATES, Candidates, chain_of, choose_nodes, with_path
from tests.support.tiny_checkpoints import DRAFTERS
from tests.unit.common.model.pairs import block_ids, context_at
from tests.unit.common.model.test_drafter_kinds import ANCHORS, LENGTHS, Served, made

SEED = 65


def found(batch: int, depth: int, count: int, conditional: bool) -> Candidates:
    generator = torch.Generator().manual_seed(SEED + depth)
    scores = torch.randn(batch, depth, count if conditional else 1, count, generator=generator, dtype=torch.float64)
    ids = torch.stack([torch.randperm(90, generator=generator)[: depth * count] for _ in range(batch)])
    return Candidates(ids.view(batch, depth, count), (2 * scores).log_softmax(-1))


def paths(candidates: Candidates, sequence: int) -> dict[tuple[int, ...], float]:
    """Score every path of every depth by brute force."""
    ids, scores = candidates.ids_BKC[sequence].tolist(), candidates.scores_BKPC[sequence].tolist()
    known: dict[tuple[int, ...], float] = {}
    for depth in range(1, len(ids) + 1):
        for picks in itertools.product(range(len(ids[0])), repeat=depth):
            total = 0.0
            for position, pick in enumerate(picks):
                before = picks[position - 1] if position and len(scores[position]) > 1 else 0
                total += scores[position][before][pick]
            told = tuple(ids[position][pick] for position, pick in enumerate(picks))
            known[told] = max(total, known.get(told, -math.inf))
    return known


def path_of(tokens: list[int], parents: list[int], draft: int) -> tuple[int, ...]:
    path = [tokens[draft]]
    while (row := parents[draft]) > 0:
        draft = row - 1
        path.append(tokens[draft])
    return tuple(reversed(path))


@pytest.mark.parametrize("conditional", [False, True])
def test_nodes_are_those_whose_paths_are_likeliest_and_come_in_that_order(conditional: bool) -> None:
    candidates = found(2, 4, 3, conditional)
    tokens, parents = choose_nodes(candidates, 12)
    for sequence in range(2):
        best = sorted(paths(candidates, sequence).items(), key=lambda item: -item[1])[:12]
        got = [path_of(tokens[sequence].tolist(), parents[sequence].tolist(), draft) for draft in range(12)]
        assert got == [path for path, _ in best]
        assert all(parent <= draft for draft, parent in enumerate(parents[sequence].tolist()))


def test_a_smaller_tree_is_the_beginning_of_a_larger_one() -> None:
    candidates = found(3, 5, CANDIDATES, True)
    tokens, parents = choose_nodes(candidates, 30)
    for count in (1, 7, 15):
        assert [each.tolist() for each in choose_nodes(candidates, count)] == [
            tokens[:, :count].tolist(),
            parents[:, :count].tolist(),
        ]


def test_equal_scores_come_in_the_order_of_depth_then_rank() -> None:
    flat = Candidates(torch.tensor([[[10, 11], [20, 21]]]), torch.zeros(1, 2, 1, 2))
    tokens, parents = choose_nodes(flat, 6)
    assert tokens.tolist() == [[10, 11, 20, 20, 21, 21]]
    assert parents.tolist() == [[0, 0, 1, 2, 1, 2]]


def test_a_tree_that_is_exhausted_leaves_nodes_absent() -> None:
    tokens, _ = choose_nodes(found(1, 1, 2, False), 4)
    assert tokens[0, 2:].tolist() == [-1, -1]


@pytest.mark.parametrize("conditional", [False, True])
def test_a_path_from_elsewhere_takes_its_share_of_the_scores(conditional: bool) -> None:
    """Its first token is the head's third candidate, its second unknown to the head, and it ends behind its third."""
    head = found(1, 3, 3, conditional)
    own = paths(head, 0)
    (first, second, _), third = head.ids_BKC[0].tolist(), 77_000
    path = [first[2], third, 88_000, 99_000, 0]
    mixed = with_path(head, torch.tensor([path]), torch.tensor([[0.5, 0.25, 0.75, 0.125, 0.0]]))
    shares = mixed.scores_BKPC.exp().sum(-1)[0]
    torch.testing.assert_close(shares[:3, 0], torch.ones_like(shares[:3, 0]))
    scores = {told: score for told, score in paths(mixed, 0).items() if score > -math.inf}
    half, token = math.log(0.5), (first[2],)
    assert scores[token] == pytest.approx(math.log(0.5 + 0.5 * math.exp(own[token])))
    assert scores[first[0],] == pytest.approx(own[first[0],] + half)
    assert scores[first[0], second[1]] == pytest.approx(own[first[0], second[1]] + half)
    behind = own[first[2], second[1]] - own[token] + math.log(0.75)
    assert scores[first[2], second[1]] == pytest.approx(scores[token] + behind)
    assert scores[first[2], third] == pytest.approx(scores[token] + math.log(0.25))
    assert scores[tuple(path[:4])] == pytest.approx(scores[token] + math.log(0.25 * 0.75 * 0.125))
    assert not [told for told in scores if len(told) > 4 or (len(told) == 4 and told != tuple(path[:4]))]


def test_a_path_of_no_chance_changes_no_tree() -> None:
    head = found(2, 4, 3, True)
    nothing = with_path(head, torch.full((2, 9), 5), torch.zeros(2, 9))
    assert [each.tolist() for each in choose_nodes(nothing, 9)] == [each.tolist() for each in choose_nodes(head, 9)]


def test_candidates_without_a_chance_are_no_nodes() -> None:
    scores = torch.tensor([[[[0.0, -torch.inf]], [[-torch.inf, -torch.inf]]]])
    tokens, parents = choose_nodes(Candidates(torch.tensor([[[10, 11], [20, 21]]]), scores), 3)
    assert (tokens.tolist(), parents.tolist()) == ([[10, -1, -1]], [[0, 0, 0]])


def test_a_chain_follows_itself() -> None:
    tokens, parents = chain_of(torch.tensor([[5, 6, 7]]))
    assert (tokens.tolist(), parents.tolist()) == ([[5, 6, 7]], [[0, 1, 2]])


@pytest.mark.parametrize("kind", sorted(DRAFTERS))
@pytest.mark.parametrize("coupled", [False, True])
def test_the_chain_of_every_kind_is_a_path_of_first_candidates(kind: str, coupled: bool, tmp_path: Path) -> None:
    served = Served(made(tmp_path, kind))
    block, dice = served.block, random.Random(SEED)
    noise = torch.tensor([[[dice.gauss(0, 1) for _ in range(90)] for _ in range(8)] for _ in range(3)])
    count, vocab = block.spec.most_drafts, served.target.spec.vocab_size
    noise = noise.double().repeat(1, 1, -(-vocab // 90))[:, :count, :vocab]
    heat = Coupling(noise, torch.tensor([1.3, 1.0, 2.0]).double(), torch.tensor([1.0, 0.0, 1.0]).double())
    coupling = heat if coupled else None
    ids, rows = block_ids(block, torch.tensor(ANCHORS)), context_at(served.table, LENGTHS, block.spec.block_size)
    tables = block.seat(served.target.embed_VD, served.target.lm_head_VD)
    ranked = block.rank(ids, rows, served.kv, *tables, count, coupling)
    best_BKP = ranked.scores_BKPC.argmax(-1)
    chains = []
    for sequence in range(3):
        pick, chain = 0, []
        for position in range(count):
            pick = int(best_BKP[sequence, position, pick if best_BKP.shape[2] > 1 else 0])
            chain.append(int(ranked.ids_BKC[sequence, position, pick]))
        chains.append(chain)
    assert chains == served.propose(count, coupling)
    chances = ranked.scores_BKPC.exp().sum(-1)
    # A head of confidence leaves the rest to no candidate.
    assert (chances < 1.0).all() if kind == "dspark" else torch.allclose(chances, torch.ones_like(chances))
