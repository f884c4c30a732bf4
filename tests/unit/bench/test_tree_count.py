"""Trees are counted as a search of every path would count them, and rounds as they commit."""

import random
from itertools import product
from pathlib import Path

from tests.bench.nodes_offline import Line, save, table
from tests.bench.tree_count import Ranked, chain_accepts, rounds_of, tree_accepts
from tests.support.cases import each

DEPTH, CANDIDATES, VOCAB = 4, 3, 6


def made_up(seed: int) -> tuple[Ranked, list[int]]:
    """Candidates of unlike scores, and a text that follows them for some tokens."""
    source = random.Random(seed)
    ids = [source.sample(range(VOCAB), CANDIDATES) for _ in range(DEPTH)]
    scores = [sorted((-source.expovariate(1.0) for _ in ids[0]), reverse=True) for _ in range(DEPTH)]
    truth = [source.choice(each) if source.random() < 0.8 else source.randrange(VOCAB) for each in ids]
    return Ranked(ids, scores), truth[: source.randrange(1, DEPTH + 1)]


def by_search(ranked: Ranked, truth: list[int], rows: int, candidates: int) -> int:
    """Rank all paths by the sums of their scores, the shorter first of equals, and look whose tokens are the text's."""
    paths = [path for depth in range(1, DEPTH + 1) for path in product(range(candidates), repeat=depth)]

    def cost(path: tuple[int, ...]) -> tuple[float, int]:
        return -sum(scores[rank] for scores, rank in zip(ranked.scores, path, strict=False)), len(path)

    kept = sorted(paths, key=cost)[: rows - 1]
    texts = [[ids[rank] for ids, rank in zip(ranked.ids, path, strict=False)] for path in kept]
    return max((len(text) for text in texts if text == truth[: len(text)]), default=0)


@each("seed", range(40))
def test_a_tree_holds_the_paths_with_the_largest_products(seed: int) -> None:
    ranked, truth = made_up(seed)
    for rows, candidates in product((1, 2, 4, 8, 16, 400), (1, 2, CANDIDATES)):
        assert tree_accepts(ranked, truth, rows, candidates) == by_search(ranked, truth, rows, candidates)


@each("seed", range(40))
def test_a_tree_of_one_candidate_is_a_chain(seed: int) -> None:
    ranked, truth = made_up(seed)
    for rows in (1, 2, 3, 5, 9):
        assert tree_accepts(ranked, truth, rows, 1) == chain_accepts(ranked, truth, rows)


def test_rounds_commit_what_they_accept_and_one_token_more() -> None:
    drafts = Ranked([[1], [2], [9]], [[0.0], [0.0], [0.0]])
    assert rounds_of([drafts] * 3, [1, 2, 3], lambda ranked, truth: chain_accepts(ranked, truth, 4)) == 1
    assert rounds_of([drafts] * 3, [1, 2, 3], lambda ranked, truth: chain_accepts(ranked, truth, 2)) == 2
    assert rounds_of([drafts] * 3, [7, 7, 7], lambda ranked, truth: chain_accepts(ranked, truth, 4)) == 3


def test_a_pair_counted_again_replaces_its_lines(tmp_path: Path) -> None:
    file = tmp_path / "counted.json"
    save(file, "a", [{"pair": "a", "rows": 4}])
    save(file, "b", [{"pair": "b", "rows": 4}])
    save(file, "a", [{"pair": "a", "rows": 8}])
    assert '"rows": 8' in file.read_text("utf-8")
    assert file.read_text("utf-8").count('"pair": "a"') == 1
    line = Line("a", 0.8, True, 8, 12, 663, 2.0, {"2": 2.1, "4": 2.2, "8": 2.5, "16": 2.5})
    assert table([line]).splitlines()[-1] == "| a | 0.8 | coupled | 8 | 2.00 | 2.10 | 2.20 | 2.50 | 2.50 | +25% |"
