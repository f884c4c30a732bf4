"""A program's request as plain values; a value of None is left to the gateway."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any, TypedDict, Unpack

from paceline.fields import FIELDS, TEXTS, check


@dataclass(frozen=True)
class ToolCall:
    """A call that the assistant asked for."""

    id: str
    """What the tool's message answers to."""
    name: str
    """The function."""
    arguments: str = ""
    """A JSON object as text."""


@dataclass(frozen=True)
class Message:
    """One message of a chat. A dict in OpenAI's form serves as well: `{"role": "user", "content": "hello"}`."""

    role: str
    """system, user, assistant or tool."""
    content: str
    """The text."""
    tool_calls: Sequence[ToolCall] = ()
    """Calls that the assistant asked for."""
    tool_call_id: str = ""
    """The call that a tool's message answers."""
    name: str = ""
    """The tool that answers."""
    reasoning_content: str = ""
    """What the assistant thought before it answered."""


@dataclass(frozen=True)
class Tool:
    """A function that the model may ask for. A dict in OpenAI's form serves as well."""

    name: str
    """Its name."""
    description: str = ""
    """What it does."""
    parameters: str = ""
    """JSON Schema of its arguments as text."""


Prompt = str | Sequence[Message | Mapping[str, Any]] | Sequence[int]
"""Text, the messages of a chat, or token ids."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How text is made. What is left out is left to the gateway: greedy, and its default of tokens.

    Raises:
        TypeError, InvalidValueError: a value does not fit its field; the message begins with its name.
    """

    model: str = ""
    """Name of the model; empty takes the one that is served."""
    max_tokens: int | None = None
    """Most tokens of the answer, at least 1."""
    temperature: float | None = None
    """0 takes the best token; at most 2."""
    seed: int | None = None
    """Seed of the noise; drawn when absent, and told in `Answer.seed`."""
    top_p: float | None = None
    """Mass of the best tokens kept, above 0 and at most 1."""
    top_k: int | None = None
    """Number of best tokens kept; 0 keeps all."""
    min_p: float | None = None
    """Drops tokens below this part of the best token's probability."""
    repetition_penalty: float | None = None
    """Divides the scores of tokens seen in prompt or output; 1 changes nothing."""
    presence_penalty: float | None = None
    """Taken once from the score of a token in the output; from -2 to 2."""
    frequency_penalty: float | None = None
    """Taken from a token's score for each time it is in the output; from -2 to 2."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """Added to the scores of token ids; from -100 to 100."""
    min_tokens: int | None = None
    """Tokens before an end may count."""
    stop: str | Sequence[str] = ()
    """Strings that end the text and are cut from it."""
    stop_token_ids: Sequence[int] = ()
    """Tokens that end the text and are cut from it."""
    ignore_eos: bool | None = None
    """The model's own end does not end the text."""
    speculation: bool = True
    """False decodes one token a round."""
    max_draft: int | None = None
    """Longest draft in tokens, at most the model's."""
    logprobs: int | None = None
    """Best tokens told at each position, beside the chosen one; 0 to 20. Absent: no log-probabilities."""
    prompt_logprobs: int | None = None
    """The same for each token of the prompt from its second on, which are told before the first piece of text."""
    bad_words: str | Sequence[str] = ()
    """Texts whose tokens never come, alone or behind a blank."""
    allowed_token_ids: Sequence[int] = ()
    """The only tokens that may come, ends of texts too; empty allows all."""
    thinking_budget: int | None = None
    """Tokens of a thought after which it is closed; for models that think in <think> tags."""
    priority: int = 0
    """Higher runs first among the requests of a tenant."""
    timeout_s: float | None = None
    """Seconds after which the answer ends in good order with the text so far, `finish` deadline."""
    idempotency_key: str = ""
    """Two requests with one key run once."""
    migration: bool = True
    """False fails the call when its target is lost, and does not continue on another one."""
    tools: Sequence[Tool | Mapping[str, Any]] = ()
    """Functions that the chat template tells the model of."""
    template: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    """What the chat template reads beside, such as `{"enable_thinking": False}`."""

    def __post_init__(self) -> None:
        """Names the first value that does not fit."""
        for name in FIELDS:
            value = getattr(self, name)
            if value is not None:
                check(name, [value] if name in TEXTS and isinstance(value, str) else value)


class Keywords(TypedDict, total=False):
    """The fields of Options, for calls that name them one by one."""

    model: str
    max_tokens: int | None
    temperature: float | None
    seed: int | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    repetition_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    logit_bias: Mapping[int, float]
    min_tokens: int | None
    stop: str | Sequence[str]
    stop_token_ids: Sequence[int]
    ignore_eos: bool | None
    speculation: bool
    max_draft: int | None
    logprobs: int | None
    prompt_logprobs: int | None
    bad_words: str | Sequence[str]
    allowed_token_ids: Sequence[int]
    thinking_budget: int | None
    priority: int
    timeout_s: float | None
    idempotency_key: str
    migration: bool
    tools: Sequence[Tool | Mapping[str, Any]]
    template: Mapping[str, bool | int | float | str]


def chosen(options: Options | None, **keywords: Unpack[Keywords]) -> Options:
    """Options with the fields that keywords name in place of theirs.

    Raises:
        TypeError, InvalidValueError: there is no such field, or a value does not fit it.
    """
    names = [one.name for one in fields(Options)]
    for name in keywords:
        if name not in names:
            near = get_close_matches(name, names, 1)
            raise TypeError(f"no such option: {name}{f'; is it {near[0]}?' if near else ''}")
    if options is not None and not isinstance(options, Options):
        raise TypeError(f"options: {options!r} is no Options; name options as keywords: max_tokens=64")
    return replace(options or Options(), **keywords)
