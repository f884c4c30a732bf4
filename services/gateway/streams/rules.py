"""Makes the rule of a query: its grammar, the bound of its thought, and the words that it allows."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from services.common.request.constraint import ANY_WORDS, Constraint, Form, Rule, Thought, Words
from services.common.request.errors import invalid_field, unsupported
from services.common.request.limits import LIMITS
from services.common.request.validation import check_range, check_token_ids, check_words
from services.gateway.intake.fair_threads import FairThreads
from services.gateway.intake.query import ChatPrompt, Query
from services.gateway.prompts.tokenizer import Tokenizer
from services.gateway.settings import GatewaySettings
from services.gateway.tenancy.admission import Tenant

GRAMMAR_THREADS = 2
"""Tenants whose grammars are compiled at the same time."""
ALLOWED, BAD = "allowed_token_ids", "bad_words"


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Tokens of a thought where a request states none: by its effort, else all alike; 0 is no bound."""

    by_effort: Mapping[str, int]
    otherwise: int

    def of(self, query: Query) -> int | None:
        if query.budget is not None:
            return query.budget
        if query.effort in self.by_effort:
            return self.by_effort[query.effort]
        chats = query.thinks or isinstance(query.prompt, ChatPrompt)
        return self.otherwise if chats and self.otherwise else None


class Rules:
    """Makes rules; grammars are compiled in threads."""

    def __init__(self, settings: GatewaySettings) -> None:
        """Takes what says how thoughts are bounded and closed."""
        self._free_grammars = settings.free_grammars
        self._bounds = _Bounds(settings.budgets, settings.thinking_budget)
        self._before_closing = f"\n{settings.thinking_end}\n" if settings.thinking_end else "\n"
        self._threads = FairThreads(GRAMMAR_THREADS, "grammar")

    async def rule(
        self, query: Query, prompt: tuple[int, ...], vocabulary: int, tenant: Tenant, tokenizer: Tokenizer
    ) -> Rule | None:
        """What a target must hold the output to; None where it may be anything. Tenants take turns.

        Args:
            query: what the client asks.
            prompt: its token ids.
            vocabulary: ids that there are.
            tenant: who asks.
            tokenizer: the model's.

        Raises:
            PacelineError: INVALID_FIELD, a part of it is none; UNSUPPORTED, this model cannot be held to it.
        """
        words = _words(query, vocabulary, tokenizer)
        thought = self._thought(query, prompt, tokenizer)
        if query.constraint is not None:
            compiled = await self._compiled(query.constraint, tenant, tokenizer)
            return replace(compiled, thought=thought, words=words)
        rule = Rule(thought=thought, words=words)
        return rule if rule.forces else None

    def close(self) -> None:
        """Ends the threads."""
        self._threads.close()

    async def _compiled(self, constraint: Constraint, tenant: Tenant, tokenizer: Tokenizer) -> Rule:
        grammars = tokenizer.grammars
        if grammars is None:
            raise unsupported(constraint.field, "the tokenizer of this model cannot be used for that")
        if constraint.form is Form.GRAMMAR and not self._free_grammars:
            raise unsupported(constraint.field, "grammars are taken where the gateway's setting free_grammars is on")
        return await self._threads.run(tenant.name, grammars.rule, constraint)

    def _thought(self, query: Query, prompt: tuple[int, ...], tokenizer: Tokenizer) -> Thought | None:
        """Where the thought lies, where the rule needs to know it."""
        budget = self._bounds.of(query)
        ruled = query.constraint is not None
        if (budget is None and not ruled) or (ruled and not query.thinks):
            return None
        if query.budget is not None:
            check_range(query.budget_field, query.budget, 0, LIMITS.thinking_budget)
            if tokenizer.thinks_in_parts:
                raise unsupported(query.budget_field, "the tags of this model's thoughts are no single tokens")
        thought = tokenizer.thought(prompt)
        if thought is None or budget is None:
            return thought if ruled else None
        before = tokenizer.encode(self._before_closing, special=False)
        return replace(thought, budget=budget, ending=(*before, thought.closing))


def _words(query: Query, vocabulary: int, tokenizer: Tokenizer) -> Words:
    if not (query.bad_words or query.allowed):
        return ANY_WORDS
    check_token_ids(query.allowed, vocabulary, ALLOWED)
    if query.allowed and query.constraint is not None:
        raise invalid_field(ALLOWED, f"stands beside {query.constraint.field}, which says what may come")
    spelled = (ids for word in query.bad_words for ids in _spelled(word, tokenizer))
    words = Words(tuple(dict.fromkeys(query.allowed)), tuple(dict.fromkeys(spelled)))
    check_words(words, vocabulary, ALLOWED, BAD)
    return words


def _spelled(word: str, tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    """The tokens of a word as a text begins with it, and as they follow on others, behind a blank."""
    size = len(word.encode(errors="surrogatepass"))
    if not 1 <= size <= LIMITS.bad_word_bytes:
        raise invalid_field(BAD, f"a text of {size} bytes, 1 to {LIMITS.bad_word_bytes} are allowed")
    bare = word.lstrip() or word
    return [ids for text in (bare, f" {bare}") if (ids := tuple(tokenizer.encode(text, special=False)))]
