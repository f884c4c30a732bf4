"""Turns a client's query into a running generation: checks, tokenises, fixes the seed. Knows no protobuf."""

import secrets
from collections.abc import Callable
from dataclasses import replace

from services.common.metrics.catalogue import GatewayMetrics
from services.common.request.limits import LIMITS
from services.common.request.sampling import StopParams
from services.common.request.validation import (
    Bounds,
    check_options,
    check_priority,
    check_prompt,
    check_prompt_logprobs,
)
from services.gateway.intake.fair_threads import FairThreads
from services.gateway.intake.query import DRAWN_SEED_BITS, ChatPrompt, Prompt, Query, TextPrompt, TokenPrompt
from services.gateway.parsing.reasoning import opened
from services.gateway.prompts.text import TextStream
from services.gateway.prompts.thought import ThoughtCount
from services.gateway.prompts.tokenizer import PROMPT_END, Tokenizer
from services.gateway.routing.openings import opening_of
from services.gateway.routing.routed_request import RoutedRequest
from services.gateway.settings import GatewaySettings
from services.gateway.streams.calls import current_call
from services.gateway.streams.catalogue import Catalogue, Language, unknown_model
from services.gateway.streams.events import Shown
from services.gateway.streams.generation import Generation
from services.gateway.streams.journey import JourneySettings
from services.gateway.streams.migration import MigratingRequest
from services.gateway.streams.rules import Rules
from services.gateway.targets.messages import Model
from services.gateway.targets.pool import Pool
from services.gateway.tenancy.admission import Tenant, Ticket

INLINE_BYTES = 2048
"""Texts up to this size are tokenised at once, a fraction of a millisecond; longer ones and chats in a thread."""

THREADS = 4
"""Tenants whose long prompts are tokenised at the same time."""

CHAT_THREADS = 2
"""Tenants whose short chats are rendered and tokenised at the same time; they wait for no long prompt."""


class RequestFactory:
    """Makes generations; shared by every interface that the gateway offers."""

    def __init__(self, settings: GatewaySettings, catalogue: Catalogue, pool: Pool, metrics: GatewayMetrics) -> None:
        """Long prompts have threads of their own, and so have short chats."""
        self._settings = settings
        self.catalogue = catalogue
        self._pool = pool
        self._metrics = metrics
        self._long = FairThreads(THREADS, "tokenise")
        self._chats = FairThreads(CHAT_THREADS, "chat")
        self._rules = Rules(settings)
        self._report_cached = bool(settings.tenants) or settings.report_cached_tokens
        self._journey = JourneySettings(settings.attempts, settings.wait_target_s, settings.outbox_tokens)

    async def generation(
        self,
        request_id: str,
        query: Query,
        tenant: Tenant,
        ticket: Ticket,
        deadline: float,
        traceparent: str,
        on_overflow: Callable[[], None],
    ) -> Generation:
        """Checks the query against the model and prepares its way; nothing is sent yet.

        Args:
            request_id: the gateway's id.
            query: what the client asks.
            tenant: who asks.
            ticket: its admission, told the exact number of prompt tokens.
            deadline: seconds of the monotonic clock.
            traceparent: trace context; empty without.
            on_overflow: called when the client falls too far behind.

        Raises:
            PacelineError: the query is invalid, or no target came in time.
        """
        model, language = await self.model(query.model), self.catalogue.find(query.model)
        silent = query.stopping.max_tokens == 0
        stopping = replace(query.stopping, max_tokens=1) if silent else query.stopping
        check_options(
            query.sampling, stopping, query.speculation, query.logprobs, query.priority, query.key, model.vocab_size
        )
        check_priority(query.priority, tenant.priority)
        stopping = _by_id(stopping, language)
        ids = await self.tokens(query.prompt, model, tenant)
        check_prompt_logprobs(query.prompt_logprobs, len(ids))
        ticket.settle(len(ids))
        rule = await self._rules.rule(query, ids, model.vocab_size, tenant, language.tokenizer)
        seed = query.sampling.seed if query.seed_given else secrets.randbits(DRAWN_SEED_BITS)
        job = RoutedRequest(
            request_id=request_id,
            model=model.name,
            tenant=tenant,
            prompt=ids,
            sampling=query.sampling if seed == query.sampling.seed else replace(query.sampling, seed=seed),
            stopping=stopping,
            speculation=query.speculation,
            logprobs=query.logprobs,
            priority=query.priority,
            deadline=deadline,
            key=query.key,
            migration=query.migration,
            traceparent=traceparent,
            rule=rule,
            prompt_logprobs=query.prompt_logprobs,
            opening=_opening(query.prompt, tenant, model.name),
        )
        journey = MigratingRequest(job, self._pool, self._journey, self._metrics.of(model.name), on_overflow)
        text = _text(query, stopping, language.tokenizer)
        thought = _thought(language.tokenizer, ids) if query.counts_thoughts else None
        shows = Shown(self._report_cached, query.tells_prompt, thought)
        return Generation(job, journey, text, shows, silent)

    @property
    def served(self) -> str:
        """Name of the model that a request without one is for; empty while no target has said it, or without one."""
        return self._settings.model or ("" if self.catalogue.several else self._pool.served)

    @property
    def names(self) -> list[str]:
        """Names of all models that targets have told of."""
        return [*self._pool.models]

    async def model(self, name: str) -> Model:
        """The model of a name or an alias, as its targets describe it; the present call is one for it.

        Raises:
            PacelineError: UNKNOWN_MODEL, or NO_TARGET when no target of it has been there.
        """
        language = self.catalogue.find(name)
        model = await self._pool.model(language.name, self._settings.wait_target_s)
        if name and name not in (model.name, *language.settings.aliases):
            raise unknown_model(name, [model.name])
        current_call().model = model.name
        return model

    async def models(self) -> list[tuple[Model, tuple[str, ...]]]:
        """Every model that targets have described, and its aliases.

        Raises:
            PacelineError: NO_TARGET when there is none yet.
        """
        if not self._pool.models:
            await self._pool.model("", self._settings.wait_target_s)
        known = self._pool.models
        told = ((known.get(one.name or self._pool.served), one.settings.aliases) for one in self.catalogue.languages)
        return [(model, aliases) for model, aliases in told if model is not None]

    async def tokens(self, prompt: Prompt, model: Model, tenant: Tenant) -> tuple[int, ...]:
        """Token ids of a prompt, checked against the model; tenants take turns with long ones.

        Raises:
            PacelineError: the prompt is empty, too long, or holds ids outside the vocabulary.
        """
        tokenizer = self.catalogue.find(model.name).tokenizer
        if isinstance(prompt, TokenPrompt):
            ids = prompt.ids
        elif isinstance(prompt, TextPrompt) and prompt.size <= INLINE_BYTES:
            ids = _encode(tokenizer, prompt, model.context_limit)
        else:
            if isinstance(prompt, TextPrompt):
                tokenizer.check_size(prompt.size, model.context_limit)
            threads = self._chats if prompt.size <= INLINE_BYTES else self._long
            ids = await threads.run(tenant.name, _encode, tokenizer, prompt, model.context_limit)
        check_prompt(ids, len(ids), Bounds(model.vocab_size, model.context_limit))
        return ids

    def limits(self, tenant: Tenant) -> dict[str, int]:
        """Every limit of a tenant's requests by name."""
        return LIMITS.as_mapping() | {
            "max_priority": tenant.priority,
            "default_max_tokens": self._settings.default_max_tokens,
            "max_request_seconds": int(self._settings.max_request_s),
        }

    def close(self) -> None:
        """Ends the threads and the chat template's processes."""
        self._long.close()
        self._chats.close()
        self._rules.close()
        self.catalogue.close()


def _opening(prompt: Prompt, tenant: Tenant, model: str) -> bytes:
    return opening_of(prompt.messages, tenant.salt + model.encode()) if isinstance(prompt, ChatPrompt) else b""


def _by_id(stopping: StopParams, language: Language) -> StopParams:
    """Stop strings that are special tokens stop by their ids, for they are no part of the text."""
    if not (stopping.stop or stopping.stop_token_ids):
        return stopping
    ids = language.tokenizer.special_ids(stopping.stop)
    return replace(stopping, stop_token_ids=tuple(dict.fromkeys((*stopping.stop_token_ids, *ids))))


def _text(query: Query, stopping: StopParams, tokenizer: Tokenizer) -> TextStream:
    pieces = tokenizer.showing(None if query.shows_all else query.shows)
    return TextStream(pieces, stopping.stop, stopping.min_tokens, query.shows_stop)


def _thought(tokenizer: Tokenizer, prompt: tuple[int, ...]) -> ThoughtCount:
    begun = opened("".join(tokenizer.token(token)[0] for token in prompt[-PROMPT_END:]))
    return ThoughtCount(lambda token: tokenizer.token(token)[1], begun)


def _encode(tokenizer: Tokenizer, prompt: TextPrompt | ChatPrompt, context_limit: int) -> tuple[int, ...]:
    if isinstance(prompt, TextPrompt):
        return tuple(tokenizer.encode(prompt.text, context_limit, prompt.special))
    return tuple(tokenizer.encode_chat(prompt.messages, prompt.tools, prompt.arguments, context_limit))
