"""Compiles constraints by llguidance: for the gateway, which refuses bad ones, and for the target, which masks by them.

The library stops at its own limits of items, states and steps, so a schema or a regular expression that would take too
long is refused in bounded time. That does not hold for every free grammar: where it is ambiguous within a recursion
where tokens end, a mask may take for ever. It lets go of Python's lock while it compiles.
"""

from __future__ import annotations

import json
from collections import OrderedDict, deque
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from llguidance.gbnf_to_lark import any_to_lark

from services.common.request.constraint import Constraint, Form, Rule
from services.common.request.errors import PacelineError, invalid_field
from services.common.request.limits import LIMITS
from services.common.request.masking_tokenizer import masking_tokenizer
from services.common.request.schema_check import check_inside, check_texts, culprit, narrow, parsed
from services.common.request.validation import check_count

if TYPE_CHECKING:  # a name of its stub alone
    from llguidance._lib import JsonCompileOptions

WHITESPACE: JsonCompileOptions = {"whitespace_pattern": r"[ \n\t]{0,40}"}
"""Between the parts of a JSON text: bounded, for some models write blanks without end where they may."""
ESCAPES = 'nrbtf\\"'
"""Of texts where objects may have names beside those that are stated: the library tells such names apart as they are
written, so that with escapes by number \\u0061 would be another name than a, and take any value.
"""
KEPT, KEPT_CHARACTERS = 128, 96 * 1024
"""Grammars that stay compiled, and what they have together as they are written; a character takes 600 bytes at most."""
_CHARACTERS = 300
"""Of what the library says."""


class Grammar:
    """A compiled rule; matchers of it are copies."""

    def __init__(self, rule: Rule, matcher: LLMatcher | None, eos_ids: frozenset[int]) -> None:
        """Takes a matcher that has seen nothing; None where the rule has no grammar."""
        self.rule = rule
        self.eos_ids = eos_ids
        self._matcher = matcher

    @property
    def ends(self) -> bool:
        """Whether it says where the output ends."""
        return self._matcher is not None

    def matcher(self) -> LLMatcher:
        """A matcher that has seen nothing, where the rule has a grammar."""
        assert self._matcher is not None, "a rule without a grammar matches nothing"
        return self._matcher.deep_copy()


_IN_WORDS = {"NoExtensionBias": "refers to itself and says nothing else"}
"""What the library calls some faults, and what they are."""


class Grammars:
    """Compiles rules for one tokenizer; safe to use from several threads."""

    def __init__(self, tokenizer_json: str, vocab_size: int, eos_ids: Sequence[int], apart: int = 1) -> None:
        """Takes the text of tokenizer.json, and the model's own number of token ids and ends of a text.

        So many requests of one rule can be masked at a time: copies of one matcher wait for one another.

        Raises:
            ValueError: the library cannot read the tokenizer.
        """
        self._tokenizer = _tokenizer(tokenizer_json, vocab_size, eos_ids)
        self._bytes = -(-vocab_size // 32) * 4
        self._eos_ids = frozenset(eos_ids)
        self._limits = LLParserLimits(verbose_errors=False)
        self._lock = Lock()
        self._apart = apart
        self._kept: OrderedDict[str, deque[LLMatcher]] = OrderedDict()

    def grammar(self, rule: Rule, field: str = "grammar") -> Grammar:
        """The compiled rule.

        Raises:
            PacelineError: INVALID_FIELD, it is no grammar, or takes too many steps.
        """
        with self._lock:
            matcher = self._next(rule.grammar)
        if matcher is None:
            matcher = self._compiled(rule.grammar)
            if fault := _fault_of(matcher):
                raise invalid_field(field, fault)
            self._keep(rule.grammar, matcher)
        return Grammar(rule, matcher, self._eos_ids)

    def rule(self, constraint: Constraint) -> Rule:
        """Checks a client's constraint and makes the rule of it.

        Raises:
            PacelineError: INVALID_FIELD; the field ends with a pointer into a schema that is at fault.
        """
        size = len(constraint.text.encode(errors="surrogatepass"))
        if size > LIMITS.constraint_bytes:
            raise invalid_field(constraint.field, f"{size} bytes, at most {LIMITS.constraint_bytes} are allowed")
        if constraint.form is Form.JSON:
            return self._schema_rule(constraint)
        for part in constraint.parts:
            self._schema_rule(part)
        texts = json.loads(constraint.text) if constraint.form is Form.CHOICE else [constraint.text]
        check_texts([] if constraint.form is Form.GRAMMAR else texts, constraint.field)
        if constraint.form is Form.GRAMMAR:
            check_inside(constraint.text, constraint.field)
        rule = Rule(_source(constraint))
        self.grammar(rule, constraint.field)
        return rule

    def _schema_rule(self, constraint: Constraint) -> Rule:
        schema = parsed(constraint.text, constraint.field)
        try:
            rule = Rule(_of_schema(schema))
            self.grammar(rule, constraint.field)
        except (PacelineError, ValueError):  # the library raises for some texts, and tells of others
            pointer, fault = culprit(schema, self._schema_fault)
            raise invalid_field(f"{constraint.field}#{pointer}", fault) from None
        return rule

    def _schema_fault(self, schema: Any) -> str:
        """What the library says is wrong with a schema; empty when nothing is."""
        try:
            return _fault_of(self._compiled(_of_schema(schema)))
        except ValueError as error:
            return str(error)[:_CHARACTERS]

    def _compiled(self, source: str) -> LLMatcher:
        """A matcher that has computed its first mask, which is where a grammar's size shows."""
        matcher = LLMatcher(self._tokenizer, source, log_level=0, limits=self._limits)
        if not matcher.is_error():
            matcher.compute_bitmask()
        return matcher

    def _next(self, source: str) -> LLMatcher | None:
        """The one that was taken longest ago; None while there are fewer than requests may be masked at a time."""
        kept = self._kept.get(source)
        if kept is None or len(kept) < self._apart_of(source):
            return None
        kept.rotate(1)
        return kept[0]

    def _apart_of(self, source: str) -> int:
        """Large ones are compiled once: they would put out all others."""
        return self._apart if len(source) * self._apart <= KEPT_CHARACTERS // 8 else 1

    def _keep(self, source: str, matcher: LLMatcher) -> None:
        if len(source) > KEPT_CHARACTERS:
            return
        with self._lock:
            self._kept.setdefault(source, deque()).appendleft(matcher)
            while len(self._kept) > KEPT or self._characters > KEPT_CHARACTERS:
                self._kept.popitem(last=False)

    @property
    def _characters(self) -> int:
        return sum(len(source) * len(kept) for source, kept in self._kept.items())


def inline(schema: dict[str, Any]) -> str:
    """A JSON Schema as a part of a grammar in Lark's syntax."""
    schema = json.loads(json.dumps(schema))
    narrow(schema)
    return f"%json {json.dumps(_without_options(schema) | {'x-guidance': _options(schema)})}"


def choice_constraint(texts: Sequence[str], field: str) -> Constraint:
    """One of some texts.

    Raises:
        PacelineError: INVALID_FIELD, there are none or too many, or one is empty.
    """
    check_count(field, len(texts), LIMITS.constraint_choices)
    if not texts or not all(texts):
        raise invalid_field(field, "texts to choose from are needed, none of them empty")
    return Constraint(Form.CHOICE, json.dumps([*texts]), field)


def _tokenizer(tokenizer_json: str, vocab_size: int, eos_ids: Sequence[int]) -> LLTokenizer:
    try:
        return masking_tokenizer(tokenizer_json, vocab_size, eos_ids)
    except BaseException as error:  # its panics are no Exceptions
        if type(error).__module__ != "pyo3_runtime":
            raise
        raise ValueError(str(error)[:_CHARACTERS]) from None


def _source(constraint: Constraint) -> str:
    if constraint.form is Form.REGEX:
        return LLMatcher.grammar_from_regex(constraint.text)
    try:
        if constraint.form is Form.CHOICE:
            options = " | ".join(json.dumps(text, ensure_ascii=False) for text in json.loads(constraint.text))
            return LLMatcher.grammar_from_lark(f"start: {options}\n")
        return LLMatcher.grammar_from_lark(any_to_lark(constraint.text))
    except Exception as error:  # the converter of GBNF raises whatever its syntax made of the text
        raise invalid_field(constraint.field, f"is not a grammar: {str(error)[:_CHARACTERS]}") from None


def _without_options(schema: dict[str, Any]) -> dict[str, Any]:
    """The library's own options, which a schema may hold, are not a client's to set."""
    return {name: value for name, value in schema.items() if name != "x-guidance"}


def _of_schema(schema: Any) -> str:
    if isinstance(schema, dict):
        schema = _without_options(schema)
    narrow(schema)
    return LLMatcher.grammar_from_json_schema(json.dumps(schema), defaults=_options(schema))


def _options(schema: Any) -> JsonCompileOptions:
    return {**WHITESPACE, "json_allowed_escapes": ESCAPES} if _has_other_names(schema) else WHITESPACE


def _has_other_names(schema: Any) -> bool:
    """Whether an object anywhere has names with a meaning beside others."""
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            stated = one.get("properties") or one.get("patternProperties")
            if stated and one.get("additionalProperties") is not False:
                return True
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return False


def _fault_of(matcher: LLMatcher) -> str:
    """What the library says is wrong; empty when nothing is."""
    if not matcher.is_error():
        return ""
    said = matcher.get_error().partition("<state>")[0].replace("<non-verbose/>", "").strip()
    return _IN_WORDS.get(said, said)[:_CHARACTERS]
