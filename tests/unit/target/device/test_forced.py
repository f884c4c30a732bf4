"""Forced and forbidden tokens: budgets of thoughts, words that never come, ids that alone may."""

import random
from collections.abc import Sequence

import numpy as np
import pytest

from services.common.request.constraint import Rule, Thought, Words
from services.common.request.grammar import Grammar
from services.target.device.mind import ENDLESS
from services.target.device.walker import Walker
from tests.support.cases import each

VOCAB, WIDTH, EOS = 64, 8, 0
OPENING, CLOSING = 60, 61


def walker_of(rule: Rule, output: Sequence[int] = ()) -> Walker:
    return Walker(Grammar(rule, None, frozenset({EOS})), output)


def filled(walker: Walker, drafts: Sequence[int] = (), width: int = WIDTH) -> tuple[list[list[int]], int]:
    """The tokens that each row allows, and how many drafts."""
    masks_WN = np.full((width, VOCAB // 32), 0x55555555, dtype=np.int32)
    walked = len(walker.fill(masks_WN, drafts))
    bits = [np.unpackbits(mask_N.view(np.uint8), bitorder="little") for mask_N in masks_WN[: walked + 1]]
    return [[int(token) for token in np.flatnonzero(row)] for row in bits], walked


def rule(seed: int) -> Rule:
    """Any rule without a grammar; its words overlap."""
    source = random.Random(seed)
    budget = source.choice((None, 0, 1, 3, 9))
    ending = (*(source.randrange(1, 20) for _ in range(source.randrange(3))), CLOSING)
    thought = Thought(OPENING, CLOSING, source.random() < 0.5, budget, ending)
    allowed = tuple(range(0, VOCAB, 2)) if source.random() < 0.3 else ()
    banned = tuple(tuple(source.randrange(6) for _ in range(source.randint(1, 4))) for _ in range(source.randrange(8)))
    return Rule(thought=source.choice((thought, None)), words=Words(allowed, banned))


@each("seed", range(60))
def test_rows_equal_those_of_an_output_that_was_committed(seed: int) -> None:
    source, walker, output = random.Random(seed), walker_of(rule(seed)), list[int]()
    for _ in range(6):
        drafts, twin = list[int](), walker_of(rule(seed), output)
        expected = [filled(twin, (), 1)[0][0]]
        while len(drafts) < WIDTH - 1:
            token = source.randrange(VOCAB) if source.random() < 0.1 else source.choice(expected[-1][:8])
            drafts.append(token)
            if token not in expected[-1]:
                break
            twin.commit([token])
            expected.append(filled(twin, (), 1)[0][0])
        drafts += [source.randrange(VOCAB) for _ in range(WIDTH - 1 - len(drafts))]
        for _ in range(2):
            rows, walked = filled(walker, drafts)
            assert (rows, walked) == (expected, len(expected) - 1)
        assert all(len(row) == VOCAB for row in rows[: walker.free]), "a free row has no mask"
        kept = [*drafts[: source.randint(0, walked)]]
        kept.append(source.choice(rows[len(kept)]))
        walker.commit(kept)
        output += kept


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("budget", [0, 1, 5])
def test_a_thought_is_closed_when_its_budget_is_spent(begun: bool, budget: int) -> None:
    thought = Thought(OPENING, CLOSING, begun, budget, (7, 8, CLOSING))
    output = [] if begun else [OPENING]
    for token in range(10, 10 + budget):
        assert len(filled(walker_of(Rule(thought=thought), output), (), 1)[0][0]) == VOCAB, "the budget is the model's"
        output.append(token)
    for forced in (7, 8, CLOSING):
        walker = walker_of(Rule(thought=thought), output)
        assert (filled(walker)[0], walker.free) == ([[forced]], 0)
        output.append(forced)
    behind = walker_of(Rule(thought=thought), output)
    assert (len(filled(behind)[0][0]), behind.free) == (VOCAB, ENDLESS)


def test_a_thought_that_ends_by_itself_or_never_began_forces_nothing() -> None:
    thought = Thought(OPENING, CLOSING, True, 3, (CLOSING,))
    assert walker_of(Rule(thought=thought), [4, CLOSING]).free == ENDLESS
    unbegun = Thought(OPENING, CLOSING, False, 3, (CLOSING,))
    assert walker_of(Rule(thought=unbegun)).free == 4
    assert walker_of(Rule(thought=unbegun), [9]).free == ENDLESS
    assert walker_of(Rule(thought=unbegun), [OPENING, 9]).free == 2


@each("seed", range(40))
def test_no_banned_sequence_comes_and_nothing_else_is_forbidden(seed: int) -> None:
    source = random.Random(seed)
    words = Words((), tuple(tuple(source.randrange(4) for _ in range(source.randint(1, 4))) for _ in range(6)))
    walker, output = walker_of(Rule(words=words)), list[int]()
    for _ in range(60):
        ends = {word[-1] for word in words.banned if tuple([*output, word[-1]][-len(word) :]) == word}
        ((allowed,), _) = filled(walker)
        assert allowed == [token for token in range(VOCAB) if token not in ends]
        token = source.choice([one for one in allowed if one < 6])
        walker.commit([token])
        output.append(token)


def test_only_allowed_ids_come_and_a_budget_may_still_close() -> None:
    thought = Thought(OPENING, CLOSING, True, 1, (CLOSING,))
    words = Words((3, 4), ((4,),))
    assert filled(walker_of(Rule(words=words)))[0] == [[3]]
    assert filled(walker_of(Rule(words=Words((4,), ((4,),)))))[0] == [[4]], "a row is never without a choice"
    assert filled(walker_of(Rule(thought=thought, words=words), [3]))[0] == [[CLOSING]]
