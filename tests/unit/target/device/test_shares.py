"""Masks of one request's rows that several threads make are those of one matcher, row by row."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from services.common.request.constraint import Constraint, Form, Rule
from services.common.request.grammar import Grammar, Grammars
from services.target.device.masks import by_itself, by_threads
from services.target.device.vocabulary import has_bit
from services.target.device.walker import Walker
from tests.support.schemas import schema

TOKENIZER = Path(__file__).parents[4] / "models" / "embedded" / "target" / "tokenizer.json"
VOCAB, EOS, WIDTH, THREADS = 1024, 0, 16, 6


def room() -> np.ndarray:
    return np.full((WIDTH, VOCAB // 32), 0x55555555, dtype=np.int32)


def drafts_of(walker: Walker, source: random.Random) -> list[int]:
    """What the rule allows, one behind the other; now and then a draft breaks it."""
    drafts: list[int] = []
    while len(drafts) < WIDTH - 1:
        mask_N = room()[: len(drafts) + 1]
        if len(walker.fill(mask_N, drafts)) < len(drafts) or not mask_N[-1].any():
            break
        allowed = [token for token in range(VOCAB) if has_bit(mask_N[-1], token)]
        drafts.append(source.randrange(VOCAB) if source.random() < 0.02 else source.choice(allowed))
    return [*drafts, *(source.randrange(VOCAB) for _ in range(WIDTH - 1 - len(drafts)))]


@pytest.mark.parametrize("requests", [1, 2, 4])
def test_rows_that_threads_share_have_the_masks_of_one_matcher(requests: int) -> None:
    source, shared = random.Random(requests), 0
    grammars = Grammars(TOKENIZER.read_text("utf-8"), VOCAB, (EOS,), apart=THREADS)
    with ThreadPoolExecutor(THREADS) as threads:
        for seed in range(6):
            rule = grammars.rule(Constraint(Form.JSON, json.dumps(schema(seed)), "it"))
            for _ in range(THREADS):
                grammars.grammar(rule)
            walkers = [Walker(grammars.grammar(rule)) for _ in range(requests)]
            for _ in range(4):
                drafts = [drafts_of(walker, source) for walker in walkers]
                ours, theirs = ([room() for _ in walkers] for _ in range(2))
                expected = [by_itself(one) for one in zip(walkers, ours, drafts, strict=True)]
                told = by_threads(threads, [*zip(walkers, theirs, drafts, strict=True)], THREADS)
                assert told == expected, f"schema {seed}"
                for mask_WN, other_WN, walked in zip(ours, theirs, told, strict=True):
                    rows = len(walked) + 1
                    assert np.array_equal(mask_WN[:rows], other_WN[:rows]), f"schema {seed}"
                    shared += rows >= 2 * (WIDTH // THREADS)
                for walker, walked in zip(walkers, told, strict=True):
                    walker.commit(walked[: source.randrange(1 + len(walked))])
    assert shared > 5


class Failing:
    """A library's matcher that gives up at its first drafts, and at no copy of it."""

    def __init__(self, matcher: Any) -> None:
        self.matcher, self.failed, self.copies = matcher, False, 0

    def deep_copy(self) -> Any:
        self.copies += 1
        return Failing(self.matcher.deep_copy()) if self.copies == 1 else self.matcher.deep_copy()

    def is_error(self) -> bool:
        return self.failed

    def consume_tokens(self, tokens: list[int]) -> bool:
        return bool(self.matcher.consume_tokens(tokens))

    def try_consume_tokens(self, _: list[int]) -> int:
        self.failed = True
        return 0


def test_a_library_that_gives_up_at_a_part_changes_no_mask() -> None:
    grammars = Grammars(TOKENIZER.read_text("utf-8"), VOCAB, (EOS,), apart=2)
    rule = grammars.rule(Constraint(Form.JSON, '{"type": "array", "items": {"type": "integer"}, "minItems": 40}', "it"))
    grammars.grammar(rule)
    whole = grammars.grammar(rule)
    failing = cast(Any, Failing(whole.apart[0]))
    walker = Walker(Grammar(Rule(rule.grammar), whole._matcher, frozenset({EOS}), [failing]))
    drafts, ours, theirs = drafts_of(walker, random.Random(3)), room(), room()
    expected = by_itself((walker, ours, drafts))
    with ThreadPoolExecutor(2) as threads:
        for _ in range(2):  # behind the first one a fresh copy masks
            assert by_threads(threads, [(walker, theirs, drafts)], 2) == [expected]
            assert np.array_equal(ours[: len(expected) + 1], theirs[: len(expected) + 1])
            theirs[:] = 7
    assert failing.copies == 2
