"""A client's request as plain values, before it was checked against the model."""

from dataclasses import dataclass, field
from typing import Any

from services.common.request.constraint import Constraint
from services.common.request.sampling import SamplingParams, SpeculationParams, StopParams
from services.gateway.tenancy.admission import estimated_tokens

Argument = Any
"""A value of JSON."""

DRAWN_SEED_BITS = 53
"""Of a seed that the gateway draws: programs that read JSON's numbers as floats can send it back."""


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """Plain text of `size` bytes; `special` lets the tokenizer add its own special tokens."""

    text: str
    size: int
    special: bool = True


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """Token ids."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """Messages, tools and further arguments as a chat template reads them, `size` bytes in all."""

    messages: tuple[dict[str, Any], ...]
    size: int
    tools: tuple[dict[str, Any], ...] = ()
    arguments: dict[str, Argument] = field(default_factory=dict)


Prompt = TextPrompt | TokenPrompt | ChatPrompt


@dataclass(frozen=True, slots=True)
class Query:
    """One call; `seed_given` tells a seed of 0 from none, `timeout_s` is None without one.

    `choices` are answers to the same prompt, each with noise of its own; `others` are further prompts, each answered as
    if it came alone. `shows` are special tokens that stand in the
    text by their names, where others are no part of it. `constraint` is what the output must be like, but for a thought
    before it where the chat `thinks`. `prompt_logprobs` are alternatives to each token of the prompt that are told.
    The output has `allowed` ids alone, empty is all, and holds none of the `bad_words`. A thought has at most `budget`
    tokens, stated as `budget_field`; where none are its `effort` may say. `tells_prompt` asks for the prompt's ids.
    With `shows_all` every special token stands in the text, with `shows_stop` the stop string that ends it does.
    With `counts_thoughts` the end tells the tokens of the thought.
    """

    model: str
    prompt: Prompt
    sampling: SamplingParams
    seed_given: bool
    stopping: StopParams
    speculation: SpeculationParams
    logprobs: int | None
    priority: int
    timeout_s: float | None
    key: str
    migration: bool
    choices: int = 1
    shows: frozenset[str] = frozenset()
    constraint: Constraint | None = None
    thinks: bool = False
    prompt_logprobs: int | None = None
    others: tuple[Prompt, ...] = ()
    bad_words: tuple[str, ...] = ()
    allowed: tuple[int, ...] = ()
    budget: int | None = None
    budget_field: str = "thinking_budget"
    effort: str = ""
    tells_prompt: bool = False
    shows_all: bool = False
    shows_stop: bool = False
    counts_thoughts: bool = False


def prompt_cost(prompt: Prompt) -> int:
    """Prompt tokens: exact for ids, estimated from the size otherwise."""
    return len(prompt.ids) if isinstance(prompt, TokenPrompt) else estimated_tokens(prompt.size)
