"""Masks follow the committed output and the drafts before a row, and nothing else."""

from __future__ import annotations

import ctypes
import json
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from tokenizers import Tokenizer

from services.common.request.constraint import Constraint, Form, Rule, Thought
from services.common.request.grammar import Grammar, Grammars
from services.target.device.vocabulary import has_bit, without
from services.target.device.walker import Walker
from tests.support.cases import each
from tests.support.schemas import schema

TOKENIZER = Path(__file__).parents[4] / "models" / "embedded" / "target" / "tokenizer.json"
VOCAB, WIDTH, EOS = 1024, 8, 0
OPENING, CLOSING = 1000, 1001


@cache
def grammars() -> Grammars:
    return Grammars(TOKENIZER.read_text("utf-8"), VOCAB, (EOS,))


def grammar(seed: int, thought: Thought | None = None) -> Grammar:
    rule = grammars().rule(Constraint(Form.JSON, json.dumps(schema(seed)), "it"))
    return grammars().grammar(Rule(rule.grammar, thought))


def allowed(mask_N: np.ndarray) -> list[int]:
    return [int(token) for token in np.flatnonzero(np.unpackbits(mask_N.view(np.uint8), bitorder="little"))]


def filled(walker: Walker, drafts: Sequence[int], width: int = WIDTH) -> tuple[list[list[int]], int]:
    """The tokens that each row allows, and how many drafts."""
    masks_WN = np.full((width, VOCAB // 32), 0x55555555, dtype=np.int32)
    walked = len(walker.fill(masks_WN, drafts))
    return [allowed(mask_N) for mask_N in masks_WN[: walked + 1]], walked


@each("seed", range(20))
def test_rows_equal_those_of_an_output_that_was_committed(seed: int) -> None:
    source, walker, output = random.Random(seed), Walker(grammar(seed)), list[int]()
    for _ in range(12):
        drafts, twin = list[int](), Walker(grammar(seed), output)
        expected = [filled(twin, (), 1)[0][0]]
        while len(drafts) < WIDTH - 1:
            wrong = source.random() < 0.15
            token = source.randrange(VOCAB) if wrong else source.choice(expected[-1])
            drafts.append(token)
            if token == EOS or token not in expected[-1]:
                break
            twin.commit([token])
            expected.append(filled(twin, (), 1)[0][0])
        drafts += [source.randrange(VOCAB) for _ in range(WIDTH - 1 - len(drafts))]
        for _ in range(2):
            rows, walked = filled(walker, drafts)
            assert rows == expected, "twice the same: a walk leaves nothing behind"
            assert walked == len(expected) - 1
        kept = drafts[: source.randint(0, walked)]
        kept.append(source.choice(rows[len(kept)]))
        walker.commit(kept)
        output += kept
        if kept[-1] == EOS:
            break


def test_drafts_beyond_the_rows_are_not_walked() -> None:
    walker = Walker(grammar(7))
    token = filled(walker, (), 1)[0][0][0]
    assert filled(walker, [token, token], 1)[1] == 0


def test_a_thought_that_the_prompt_has_begun_is_free_until_it_closes() -> None:
    walker = Walker(grammar(1, Thought(OPENING, CLOSING, begun=True)))
    first = filled(Walker(grammar(1)), (), 1)[0][0]
    rows, walked = filled(walker, [5, CLOSING, first[0], EOS])
    assert walked >= 3
    assert rows[0] == rows[1] == [token for token in range(VOCAB) if token != EOS], "no text ends within a thought"
    assert rows[2] == first
    walker.commit([5, 6, CLOSING])
    assert filled(walker, (), 1)[0][0] == first


def test_a_thought_may_begin_but_need_not() -> None:
    walker, first = Walker(grammar(1, Thought(OPENING, CLOSING, begun=False))), filled(Walker(grammar(1)), (), 1)[0][0]
    assert filled(walker, (), 1)[0][0] == sorted({*first, OPENING})
    rows, walked = filled(walker, [OPENING, 9, CLOSING, first[0]])
    assert (rows[0], rows[3], walked) == (sorted({*first, OPENING}), first, 4)
    rows, _ = filled(walker, [first[0]])
    assert OPENING not in rows[1], "only at the beginning"
    thinking = Walker(walker._grammar, [OPENING])
    assert len(filled(thinking, (), 1)[0][0]) == VOCAB - 1
    answering = Walker(walker._grammar, [OPENING, 4, CLOSING, first[0]])
    assert filled(answering, ())[0] == filled(Walker(grammar(1), [first[0]]), ())[0]


class FailingMatcher:
    """Gives up for good when it has seen so many tokens."""

    def __init__(self, most: int) -> None:
        self._most, self._seen, self._failed = most, list[int](), False

    def deep_copy(self) -> FailingMatcher:
        return FailingMatcher(self._most)

    def unsafe_compute_mask_ptr(self, place: int, size: int) -> None:
        ctypes.memset(place, 0xFF, size)
        self._failed |= len(self._seen) >= self._most

    def unsafe_compute_mask_ptr_with_draft_token(self, place: int, size: int, tokens: list[int]) -> None:
        self._failed |= len(self._seen) + len(tokens) >= self._most
        ctypes.memset(place, 0xFF, 0 if self._failed else size * (len(tokens) + 1))

    def is_error(self) -> bool:
        return self._failed

    def try_consume_tokens(self, tokens: list[int]) -> int:
        self._failed |= len(self._seen) + len(tokens) > self._most
        self._seen += tokens
        return len(tokens)

    def consume_tokens(self, tokens: list[int]) -> bool:
        self._seen += tokens
        return True

    def consume_token(self, token: int) -> bool:
        return self.consume_tokens([token])

    def validate_tokens(self, tokens: list[int]) -> int:
        self._failed |= len(self._seen) + len(tokens) > self._most
        return 0 if self._failed else len(tokens)

    def compute_ff_tokens(self) -> list[int]:
        return []

    def rollback(self, count: int) -> None:
        del self._seen[-count:]


def test_a_library_that_gives_up_behind_drafts_does_not_end_the_request() -> None:
    walker = Walker(Grammar(Rule("x"), cast(Any, FailingMatcher(3)), frozenset({EOS})), [7])
    assert filled(walker, [1, 2, 3, 4])[1] == 1, "the draft before the row that cannot be masked is not accepted"
    walker.commit([1])
    assert filled(walker, [2, 3])[1] == 0
    walker.commit([2])
    assert filled(walker, [3])[0] == [[]], "now it is the request's own: a row without a choice ends it"


class FailingAtDrafts(FailingMatcher):
    """Gives up for good at several tokens in one call."""

    def deep_copy(self) -> FailingAtDrafts:
        return FailingAtDrafts(self._most)

    def try_consume_tokens(self, tokens: list[int]) -> int:
        self._failed |= len(tokens) > 1
        return 0 if self._failed else super().try_consume_tokens(tokens)


def test_a_library_that_gives_up_at_a_draft_that_is_mended_does_not_end_the_request() -> None:
    walker = Walker(Grammar(Rule("x"), cast(Any, FailingAtDrafts(3)), frozenset({EOS})), [7])
    assert walker.mended([1, 2, 3, 4]) == [1, 2, 3, 4]
    assert filled(walker, [1, 2])[1] == 1, "it goes on as if nothing had been asked"


def test_where_a_grammar_has_one_way_its_token_is_the_only_one() -> None:
    constraint = Constraint(Form.GRAMMAR, 'start: "<tool_call>" /[0-9]+/ "\\n</tool_call>"', "it")
    rule = grammars().rule(constraint)
    walker, output = Walker(grammars().grammar(rule)), list[int]()
    matcher = grammars().grammar(rule).matcher()
    while forced := matcher.compute_ff_tokens():
        rows, walked = filled(walker, [*forced, forced[0]])
        assert rows[: len(forced)] == [[token] for token in forced[:WIDTH]]
        assert walked >= min(len(forced), WIDTH - 1), "drafts that equal them are accepted"
        matcher.consume_token(forced[0])
        walker.commit(forced[:1])
        output.append(forced[0])
    assert len(output) >= 3
    assert len(filled(walker, ())[0][0]) > 1, "there are several digits"


@each("seed", range(20))
def test_mended_drafts_follow_the_rule_and_change_no_mask(seed: int) -> None:
    """Whatever came as drafts: the rows behind those that the walk gives are those of an output that was committed."""
    source, walker, output, mended = random.Random(seed), Walker(grammar(seed)), list[int](), 0
    for _ in range(12):
        drafts = [source.randrange(VOCAB) for _ in range(source.randint(0, WIDTH - 1))]
        masks_WN = np.zeros((WIDTH, VOCAB // 32), dtype=np.int32)
        found = walker.mended(drafts)
        walked = walker.fill(masks_WN, found)
        assert len(found) == len(drafts) and EOS not in walked
        assert len(walked) >= len(filled(walker, drafts)[0]) - 1, "none that was right is lost"
        mended += walked != drafts[: len(walked)]
        assert filled(walker, walked)[1] == len(walked), "a walk leaves nothing behind"
        twin = Walker(grammar(seed), output)
        for mask_N, token in zip(masks_WN, [*walked, None], strict=False):
            assert allowed(mask_N) == filled(twin, (), 1)[0][0]
            if token is not None:
                assert has_bit(mask_N, token)
                twin.commit([token])
        chosen = source.choice(allowed(masks_WN[0]))
        walker.commit([chosen])
        output.append(chosen)
        if chosen == EOS:
            break
    assert filled(walker, ())[0] == filled(Walker(grammar(seed), output), ())[0]


def test_a_draft_that_breaks_the_rule_becomes_the_one_way_that_a_grammar_has() -> None:
    rule = grammars().rule(Constraint(Form.GRAMMAR, 'start: "<tool_call>" /[0-9]+/', "it"))
    walker, masks_WN = Walker(grammars().grammar(rule)), np.zeros((WIDTH, VOCAB // 32), dtype=np.int32)
    forced = grammars().grammar(rule).matcher().compute_ff_tokens()
    wrong = [next(token for token in range(1, VOCAB) if token not in forced)] * (WIDTH - 1)
    assert walker.fill(masks_WN, wrong) == []
    walked = walker.fill(masks_WN, walker.mended(wrong))
    assert len(forced) >= 2
    assert walked[: len(forced)] == forced[: WIDTH - 1]


@pytest.mark.parametrize(
    ("before", "output", "drafts", "expected"),
    [
        ("", "abcdab", "xxx", "cda"),
        ("abcdab", "", "xxx", "cda"),
        ("ab", "ab", "cxx", "c"),
        ("abcdabef", "ab", "xxx", "efa"),
        ("abcdabef", "ab", "cxx", "cda"),
        ("cdabefabcd", "cdab", "xxx", "efa"),
        ("abcdabef", "ab", "efx", "efa"),
        ("", "abcdab", "xab", "cda"),
        ("xyxz", "", "zz", ""),
        ("abcdabx", "ab", "xxx", "cda"),
    ],
    ids=["output", "before", "never", "last", "kept", "longest", "behind", "later", "outside", "allowed"],
)
def test_a_draft_that_breaks_the_rule_becomes_what_stood_there_before(
    before: str, output: str, drafts: str, expected: str
) -> None:
    rule = grammars().rule(Constraint(Form.REGEX, r"(ab|cd|ef)*", "it"))
    walker = Walker(grammars().grammar(rule), letters(output), letters(before))
    masks_WN = np.zeros((len(drafts) + 1, VOCAB // 32), dtype=np.int32)
    walked = walker.fill(masks_WN, walker.mended(letters(drafts)))
    assert walked == letters(expected)


def test_a_draft_is_mended_by_the_rule_where_a_thought_may_begin() -> None:
    """What stood there last breaks it; the one before does not."""
    rule = grammars().rule(Constraint(Form.REGEX, r"(ab|cd|ef)*", "it"))
    ruled = grammars().grammar(Rule(rule.grammar, Thought(OPENING, CLOSING, begun=False)))
    walker = Walker(ruled, before=letters("abcdabxab"))
    assert walker.mended(letters("x")) == letters("c")


def letters(text: str) -> list[int]:
    """Tokens of one character each."""
    vocabulary = Tokenizer.from_file(str(TOKENIZER)).get_vocab()
    return [vocabulary[letter] for letter in text]


def test_stop_tokens_that_come_too_early_are_taken_out_unless_nothing_else_is_left() -> None:
    mask_N = np.zeros(2, dtype=np.int32)
    mask_N[:] = (0b1011, -(1 << 31))
    without(mask_N, (0, 63))
    assert allowed(mask_N) == [1, 3]
    without(mask_N, (1, 3))
    assert allowed(mask_N) == [1, 3]


def decided(
    walker: Walker, drafts: Sequence[int], choices: Sequence[int], early: int = 0, ahead: int = 0
) -> tuple[np.ndarray, int]:
    """The masks that choices leave, and how many rows are reached; some drafts are walked before choices are known."""
    masks_WN = np.full((len(drafts) + 1, VOCAB // 32), 0x55555555, dtype=np.int32)
    walker.ahead(drafts[:ahead])
    walked = walker.choose(masks_WN, drafts, choices, early, (34,))
    assert walked == [*drafts[: len(walked or ())]]
    return masks_WN, len(walked or ()) + 1


@each("seed", range(20))
def test_a_choice_is_masked_to_itself_where_its_mask_has_it_and_else_has_the_whole_mask(seed: int) -> None:
    """Drafts and choices are right and wrong, equal and not; where a rule has one way they may be other spellings."""
    source, walker, output = random.Random(seed), Walker(grammar(seed)), list[int]()
    whole = wrong_choices = 0
    for _ in range(25):
        early, rows, drafts, choices = source.choice((0, 0, 3)), list[list[int]](), list[int](), list[int]()
        twin = Walker(grammar(seed), output)
        while len(drafts) < WIDTH - 1:
            rows.append(filled(twin, (), 1)[0][0])
            draft = source.choice(rows[-1]) if source.random() < 0.9 else source.randrange(VOCAB)
            choices.append(draft if source.random() < 0.7 else source.choice((source.randrange(VOCAB), EOS, 34, -1)))
            drafts.append(draft)
            if draft == EOS or draft not in rows[-1]:
                break
            twin.commit([draft])
        choices += [source.randrange(VOCAB) for _ in range(len(drafts) + 1 - len(choices))]
        masks_WN, reached = decided(walker, drafts, choices, early, source.randrange(WIDTH))
        for row, (mask_N, choice) in enumerate(zip(masks_WN[:reached], choices, strict=False)):
            if row >= len(rows):
                break
            of_itself = choice in rows[row] and choice != EOS and not (row < early and choice == 34)
            later = [token for token in rows[row] if row >= early or token != 34] or rows[row]
            assert allowed(mask_N) == ([choice] if of_itself else later), f"seed {seed}"
            whole, wrong_choices = whole + (not of_itself), wrong_choices + (choice not in rows[row])
            goes_on = (choice == drafts[row]) if of_itself and row < len(drafts) else row < len(drafts)
            usable = row < len(drafts) and drafts[row] in rows[row] and drafts[row] != EOS
            assert (row + 1 < reached) == (goes_on and usable)
        walk = [draft for draft, row in zip(drafts, rows, strict=False) if draft in row and draft != EOS]
        taken = walk[: source.randrange(len(walk) + 1)] or [source.choice(rows[0])]
        if EOS in taken or 34 in taken:
            break
        if source.random() < 0.5:
            assert filled(walker, drafts) == filled(Walker(grammar(seed), output), drafts), (
                "nothing stays in the matcher"
            )
        walker.commit(taken)
        output += taken
    assert whole > 0
    assert wrong_choices > 0


@pytest.mark.parametrize(("early", "written"), [(0, "a"), (1, "b"), (2, "b")])
def test_a_row_that_chooses_a_stop_token_too_early_has_all_others_that_may_come(early: int, written: str) -> None:
    walker, (a, b) = Walker(grammars().grammar(grammars().rule(Constraint(Form.REGEX, "[ab]", "it")))), letters("ab")
    masks_WN = np.full((1, VOCAB // 32), 0x55555555, dtype=np.int32)
    assert walker.choose(masks_WN, [], [a], early, (a,)) == []
    assert allowed(masks_WN[0]) == letters(written)
    assert walker.choose(masks_WN, [], [b], early, (a,)) == []
    assert allowed(masks_WN[0]) == [b], "another choice stands"


def test_one_way_has_one_spelling_though_a_matcher_takes_others() -> None:
    rule = grammars().rule(Constraint(Form.REGEX, "returns", "it"))
    walker = Walker(grammars().grammar(rule))
    ((only,),), _ = filled(walker, (), 1)
    (shorter,) = Tokenizer.from_file(str(TOKENIZER)).encode("r").ids
    assert only != shorter
    matcher = grammars().grammar(rule).matcher()
    assert matcher.validate_tokens([shorter]) == 1, "the library takes it"
    masks_WN, reached = decided(walker, [shorter], [shorter, 5])
    assert (allowed(masks_WN[0]), reached) == ([only], 1)


def test_a_library_that_gives_up_at_a_choice_does_not_end_the_request() -> None:
    walker = Walker(Grammar(Rule("x"), cast(Any, FailingMatcher(3)), frozenset({EOS})), [7])
    masks_WN = np.zeros((4, VOCAB // 32), np.int32)
    assert walker.choose(masks_WN, [1, 2, 3], [1, 2, 3, 4], 0, ()) is None, "its masks are made without choices"
    assert filled(walker, [1, 2, 3, 4])[1] == 1, "it goes on as if nothing had been asked"
