"""One request's way through its rule: which tokens may follow its output, and each of its drafts."""

from collections.abc import Iterable, Sequence
from itertools import chain, takewhile
from typing import Any

from llguidance import LLMatcher
from numpy.typing import NDArray

from services.common.request.grammar import Grammar
from services.target.device.echo import Echo
from services.target.device.mind import Mind
from services.target.device.vocabulary import LEFT, Vocabulary, clear_bit, has_bit, only_each, set_bit, without

Array = NDArray[Any]


FREE = -1
"""In the place of a token: a rule has several ways there."""


class Walker:
    """Holds a matcher that has seen the committed output, without a thought before it.

    Drafts are walked and taken back, so masks are a function of the output and of the drafts before a row alone.
    """

    def __init__(self, grammar: Grammar, output: Sequence[int] = (), before: Sequence[int] = ()) -> None:
        """Begins behind what was committed, also elsewhere. Other drafts are guessed by tokens `before` it too."""
        self._grammar = grammar
        self._matcher = grammar.matcher() if grammar.ends else None
        self._mind = Mind.at_start(grammar.rule.thought)
        words = grammar.rule.words
        self._vocabulary = Vocabulary(words) if words else None
        self._seen: list[int] = []
        self._text: list[int] = []
        self._echo = Echo(before) if grammar.ends else None
        # Tokens that the matcher has seen behind the output, and before each of them, and behind all, the only token
        # that may come, or FREE. Whoever asks about other tokens goes back first.
        self._path, self._ways = list[int](), list[int]()
        self.commit(output)

    def commit(self, tokens: Sequence[int]) -> None:
        """Moves behind tokens that were chosen by the masks."""
        if self._matcher is not None and self.alone:
            self._say(self._matcher, tokens)
        else:
            for token in tokens:
                if self._matcher is not None and self._spoken(self._mind, token):
                    self._say(self._matcher, (token,))
                self._mind = self._mind.after(token)
        if self._vocabulary is not None:
            self._text = self._behind(self._text, tokens)
        if self._echo is not None:
            self._echo.add(tokens)

    def _say(self, matcher: LLMatcher, tokens: Sequence[int]) -> None:
        spoken = [token for token in tokens if token not in self._grammar.eos_ids]
        known = _alike(self._path, spoken)
        self._back(known)
        matcher.consume_tokens(spoken[known:])
        self._path, self._ways = [], self._ways[known:] if known == len(spoken) else []
        self._seen += spoken

    @property
    def free(self) -> int:
        """How many of the next tokens at least may be any, whatever comes."""
        return 0 if self._matcher is not None or self._vocabulary is not None else self._mind.free

    def fill(self, masks_WN: Array, drafts: Sequence[int]) -> list[int]:
        """Writes the masks of rows behind 0, 1, ... drafts, as far as the rule allows these.

        A mask without a bit ends the request: the library gave up at it.

        Returns:
            The drafts that it allows, at most one fewer than there are rows.
        """
        self._back(0)
        whole = self.whole(drafts[: len(masks_WN) - 1])
        if whole is not None and self.fills_at_once(masks_WN, whole[1]):
            return whole[1]
        mind, text, consumed = self._mind, self._text, 0
        walked: list[int] = []
        for mask_N, draft in zip(masks_WN, [*drafts[: len(masks_WN) - 1], None], strict=False):
            if not self._write(mask_N, mind, text):
                mask_N[:] = 0
                self._again(consumed)
                return walked[:-1] if consumed else walked
            if draft is None or not self._walkable(mask_N, draft):
                break
            if self._matcher is not None and self._spoken(mind, draft):
                if not self._matcher.try_consume_tokens([draft]):
                    break
                consumed += 1
            mind = mind.after(draft)
            walked.append(draft)
            text = self._behind(text, (draft,))
        if consumed and self._matcher is not None:
            self._matcher.rollback(consumed)
        return walked

    def whole(self, drafts: Sequence[int]) -> tuple[LLMatcher, list[int]] | None:
        """The matcher and the drafts that it allows, where it alone tells the masks of all rows behind them."""
        matcher = self._matcher
        if matcher is None or not self.alone:
            return None
        ended = next((place for place, token in enumerate(drafts) if token in self._grammar.eos_ids), len(drafts))
        allowed = [*drafts[:ended]]
        del allowed[matcher.validate_tokens(allowed) :]
        return None if self._fails(0) else (matcher, allowed)

    def fills_at_once(self, masks_WN: Array, allowed: Sequence[int]) -> bool:
        """Writes all masks that `whole` speaks of by one call; False where rows must be taken one by one."""
        assert self._matcher is not None, "without a matcher nothing is whole"
        masks_WN[len(allowed)] = 0
        compute = self._matcher.unsafe_compute_mask_ptr_with_draft_token  # type: ignore[attr-defined]  # of its stub
        compute(masks_WN.ctypes.data, masks_WN[0].nbytes, [*allowed])
        return self.filled(masks_WN, allowed)

    def filled(self, masks_WN: Array, allowed: Sequence[int]) -> bool:
        """Whether the library has written the masks of all rows; it stops at some ends of a grammar."""
        return not self._fails(0) and bool(masks_WN[len(allowed)].any())

    @property
    def alone(self) -> bool:
        """Whether the matcher alone tells the masks of the next rows."""
        mind = self._mind
        return self._matcher is not None and self._vocabulary is None and not (mind.thinks or mind.may_think)

    def ahead(self, drafts: Sequence[int]) -> None:
        """Walks drafts before choices are known, while a forward runs; what it finds out is not asked again."""
        ends = self._grammar.eos_ids
        if all(draft not in ends and self._goes(place, draft) for place, draft in enumerate(drafts)):
            self._way(len(drafts))

    def choose(
        self, masks_WN: Array, drafts: Sequence[int], choices: Sequence[int], early: int, stops: Sequence[int]
    ) -> list[int] | None:
        """Writes masks of rows as far as they decide: of the choice alone where the rule allows it, else whole ones.

        `choices` are what rows choose where nothing is masked, and the first `early` of them may choose no stop token.
        A row whose choice is allowed is decided, and so is all behind it, unless its draft is the same.

        Returns:
            The drafts in front of written rows; None where the library gave up, and `fill` must be asked.
        """
        ends, only = self._grammar.eos_ids, list[int]()
        for row, (mask_N, choice) in enumerate(zip(masks_WN, choices, strict=False)):
            draft = drafts[row] if row < len(drafts) and drafts[row] not in ends else None
            barred = choice < 0 or choice in ends or (row < early and choice in stops)
            if not barred and self._goes(row, choice):
                only.append(choice)
                goes_on = choice == draft
            else:
                only.append(self._refused(mask_N, row))
                whole = only[row] == FREE
                goes_on = draft is not None and not (whole and not has_bit(mask_N, draft)) and self._goes(row, draft)
                if whole and row < early:
                    without(mask_N, stops)
            if not goes_on:
                break
        _write_only(masks_WN, only)
        return None if self._failed() else [*drafts[: len(only) - 1]]

    def _refused(self, mask_N: Array, row: int) -> int:
        """Of a row that may not choose what it would the only token; FREE if it writes all that may come."""
        way = self._way(row)
        if way == FREE:
            self._back(row)
            assert self._matcher is not None, "without a matcher no mask is the matcher's"
            _compute(self._matcher, mask_N)
        return way

    def _goes(self, place: int, token: int) -> bool:
        """Walks on to a token behind those before its place, where its mask has it: one way has no other spelling."""
        matcher, path = self._matcher, self._path
        assert matcher is not None, "without a matcher no mask is the matcher's"
        if self._way(place) not in (FREE, token):
            return False
        if place < len(path):
            if path[place] == token:
                return True
            self._back(place)
        if not matcher.try_consume_tokens([token]):
            return False
        path.append(token)
        return True

    def _way(self, place: int) -> int:
        """The only token that may come at a place of the path, or behind it; FREE where there are several."""
        if place == len(self._ways):
            assert self._matcher is not None, "without a matcher there are all ways"
            one_way = self._matcher.compute_ff_tokens()
            self._ways.append(one_way[0] if one_way else FREE)
        return self._ways[place]

    def _back(self, place: int) -> None:
        """Takes back what was walked from a place on."""
        if self._matcher is not None and (more := len(self._path) - place) > 0:
            self._matcher.rollback(more)
            del self._path[place:], self._ways[place + 1 :]

    def mended(self, drafts: Sequence[int]) -> list[int]:
        """The drafts, with others from the first on that breaks the rule: those behind it were of another text.

        A draft stays where none is known to be better. No mask is made, so that a step can wait for the answer.
        """
        mind = self._mind
        self._back(0)
        if self._matcher is not None and self._echo is not None and not (mind.thinks or mind.may_think):
            return self._mended_answer(self._matcher, self._echo, drafts)
        consumed, broken = 0, False
        path: list[int] = []
        for offered in drafts:
            draft, fits = offered, not broken and self._fits(mind, offered)
            if not fits:
                broken = True
                draft, fits = self._other(mind, path, offered)
            path.append(draft)
            if not fits:
                break
            if self._matcher is not None and self._spoken(mind, draft):
                consumed += self._matcher.try_consume_tokens([draft])
            mind = mind.after(draft)
        return [*drafts] if self._fails(consumed) else [*path, *drafts[len(path) :]]

    def _mended_answer(self, matcher: LLMatcher, echo: Echo, drafts: Sequence[int]) -> list[int]:
        """The same where no thought is near; it asks the library as seldom as it can."""
        ends, place = self._grammar.eos_ids, -1
        path = [*takewhile(lambda token: token not in ends, drafts)]
        del path[matcher.try_consume_tokens(path) :]
        while len(path) < len(drafts) and not matcher.is_error():
            if one_way := [*takewhile(lambda token: token not in ends, matcher.compute_ff_tokens())]:
                taken = matcher.try_consume_tokens(one_way[: len(drafts) - len(path)])
                path, place = [*path, *one_way[:taken]], -1
                if taken:
                    continue
            for token, where in chain(echo.behind([*echo.end(), *path], place), [(drafts[len(path)], -1)]):
                if token not in ends and matcher.try_consume_tokens([token]):
                    path.append(token)
                    place = where
                    break
            else:
                break
        return [*drafts] if self._fails(len(path)) else [*path, *drafts[len(path) :]]

    def _other(self, mind: Mind, path: Sequence[int], draft: int) -> tuple[int, bool]:
        """What stands in a draft's place: the one way of a rule, or what stood behind such tokens; if it fits."""
        known: Iterable[int] = ()
        if (forced := mind.forced) is not None:
            known = (forced,)
        elif self._matcher is not None and self._echo is not None and not mind.thinks:
            stood = self._echo.behind([*self._echo.end(), *path])
            known = self._matcher.compute_ff_tokens()[:1] or (token for token, _ in stood)
        found = next((token for token in known if self._fits(mind, token)), None)
        return (draft, self._fits(mind, draft)) if found is None else (found, True)

    def _fits(self, mind: Mind, token: int) -> bool:
        """Whether rows behind a token count, as its mask will say; only words that are banned are left to that."""
        if (forced := mind.forced) is not None:
            return token == forced
        if self._matcher is None:
            return True
        if token in self._grammar.eos_ids:
            return False
        opens = mind.may_think and mind.thought is not None and token == mind.thought.opening
        return mind.thinks or opens or self._matcher.validate_tokens([token]) == 1

    def _fails(self, consumed: int) -> bool:
        """Takes drafts back; whether the library gave up at one, which must not change a text."""
        matcher = self._matcher
        if matcher is None:
            return False
        if matcher.is_error():
            self._again(1)
            return True
        if consumed:
            matcher.rollback(consumed)
        return False

    def _failed(self) -> bool:
        """Whether the library gave up behind the output; then a matcher that has seen nothing more takes its place."""
        assert self._matcher is not None, "without a matcher nothing fails"
        failed = self._matcher.is_error()
        if failed:
            self._again(1)
        return failed

    def _write(self, mask_N: Array, mind: Mind, text: Sequence[int]) -> bool:
        """The mask of one row; False where the library gives up."""
        if (forced := mind.forced) is not None:
            _only(mask_N, forced)
            return True
        if self._matcher is None:
            mask_N[:] = LEFT
        elif mind.thinks:
            mask_N[:] = LEFT
            for token in self._grammar.eos_ids:
                clear_bit(mask_N, token)
        elif not _compute(self._matcher, mask_N):
            return False
        if mind.may_think and mind.thought is not None:
            set_bit(mask_N, mind.thought.opening)
        if self._vocabulary is not None:
            self._vocabulary.narrow(mask_N, text)
        return True

    def _walkable(self, mask_N: Array, draft: int) -> bool:
        """Whether rows behind a draft count; none do behind the end of what a grammar describes."""
        return has_bit(mask_N, draft) and not (self._matcher is not None and draft in self._grammar.eos_ids)

    def _again(self, consumed: int) -> None:
        """The library never leaves an error. One behind drafts is not the request's: it must not change the text."""
        if consumed:
            self._path, self._ways = [], []
            self._matcher = self._grammar.matcher()
            self._matcher.consume_tokens(self._seen)

    def _spoken(self, mind: Mind, token: int) -> bool:
        """Whether a token is one of the answer, and none of a thought."""
        return not (mind.thinks or mind.after(token).thinks)

    def _behind(self, text: Sequence[int], tokens: Sequence[int]) -> list[int]:
        """The end of a text that banned sequences are compared with."""
        longest = 0 if self._vocabulary is None else self._vocabulary.longest
        return [*text, *tokens][-longest:] if longest else []


def _only(mask_N: Array, token: int) -> None:
    only_each(mask_N[None], (token,))


def _write_only(masks_WN: Array, tokens: Sequence[int]) -> None:
    """Has masks allow nothing but a token each; those in whose place FREE stands are written."""
    if FREE not in tokens:
        only_each(masks_WN, tokens)
        return
    for mask_N, token in zip(masks_WN, tokens, strict=False):
        if token != FREE:
            _only(mask_N, token)


def _alike(ones: Sequence[int], others: Sequence[int]) -> int:
    """How many tokens two sequences begin with alike."""
    alike = 0
    for one, other in zip(ones, others, strict=False):
        if one != other:
            break
        alike += 1
    return alike


def _compute(matcher: LLMatcher, mask_N: Array) -> bool:
    """All that may follow: one token where the grammar has one way. False where the library gives up."""
    matcher.unsafe_compute_mask_ptr(mask_N.ctypes.data, mask_N.nbytes)
    return not matcher.is_error()
