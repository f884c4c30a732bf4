"""Bodies to queries: the same plain values that the gRPC contract becomes, with the defaults of OpenAI's API."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from services.common.request.constraint import Constraint
from services.common.request.errors import PacelineError, invalid_field
from services.common.request.limits import LIMITS
from services.common.request.sampling import LOWEST_TEMPERATURE, RANGES, SamplingParams, SpeculationParams, StopParams
from services.common.request.validation import MAX_TOKENS, check_count
from services.gateway.http.reading.tools_wanted import form_of_answer
from services.gateway.http.schema.bodies import (
    MOST_ANSWERS,
    AllowedChoice,
    ChatBody,
    Common,
    CompletionBody,
    Extension,
    ModeChoice,
    NamedChoice,
    ToolBody,
)
from services.gateway.http.schema.history import FunctionCalled, MessageBody, ToolCalled
from services.gateway.http.schema.hosted import check_something_left
from services.gateway.http.schema.structured import constraint_of
from services.gateway.intake.query import ChatPrompt, Prompt, Query, TextPrompt, TokenPrompt
from services.gateway.parsing.form import Form, tags
from services.gateway.prompts.chat_check import check_size, checked_chat
from services.gateway.prompts.thought import CLOSE, OPEN

COMPLETION_TOKENS = 16
"""Most tokens of a completion when its client states none, as in OpenAI's API."""


NO_EFFORT = ("none", "minimal")
_TOOL = re.compile(r"prompt\.chat\.tools\[(\d+)\]")
THOUGHTS = frozenset({OPEN, CLOSE})


@dataclass(frozen=True, slots=True)
class Headers:
    """The options in the headers of a request."""

    key: str = ""
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Call:
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class _Message:
    role: str
    content: str
    tool_calls: tuple[_Call, ...]
    tool_call_id: str
    name: str
    reasoning_content: str


@dataclass(frozen=True, slots=True)
class _Tool:
    name: str
    description: str
    parameters: str


def chat_query(body: ChatBody, headers: Headers, forms: Sequence[Form] = ()) -> Query:
    """A chat; without max_tokens it may go on to the end of the context. `forms` are those of the model's calls.

    Raises:
        PacelineError: a field is too large or contradicts another one.
    """
    if body.top_logprobs and not body.logprobs:
        raise invalid_field("top_logprobs", "needs logprobs to be true")
    limits = {body.max_tokens, body.max_completion_tokens} - {None}
    if len(limits) > 1:
        raise invalid_field("max_completion_tokens", "differs from max_tokens, which means the same")
    most = next(iter(limits)) or MAX_TOKENS if limits else MAX_TOKENS
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    shows = THOUGHTS | tags() if tools_of(body) else THOUGHTS
    prompt = _chat(body)
    budget, field = _budget(body)
    more = {
        "shows": shows,
        "thinks": True,
        "constraint": _form_of(body, forms),
        "budget": budget,
        "budget_field": field,
        "effort": body.reasoning_effort or "",
        "prompt_logprobs": body.prompt_logprobs,
    }
    return _query(body, prompt, most, logprobs, headers, more)


def _budget(body: ChatBody) -> tuple[int | None, str]:
    """Tokens of a thought, and the name of the field that states them."""
    stated, thinking = body.thinking_token_budget, body.thinking
    if thinking is None or thinking.budget_tokens is None:
        return stated, "thinking_token_budget"
    if stated is not None and stated != thinking.budget_tokens:
        raise invalid_field("thinking.budget_tokens", "differs from thinking_token_budget, which means the same")
    return thinking.budget_tokens, "thinking.budget_tokens"


def _form_of(body: ChatBody, forms: Sequence[Form]) -> Constraint | None:
    """What the answer must be like: calls that are required, a form of its own, or one of both."""
    several = body.parallel_tool_calls is not False
    return form_of_answer(choice_of(body), tools_of(body), forms, several, constraint_of(body))


def choice_of(body: ChatBody) -> NamedChoice | str | None:
    """Which tools may be called, among those that the model is told of."""
    choice = body.tool_choice
    if isinstance(choice, AllowedChoice):
        return choice.allowed_tools.mode
    return choice.type if isinstance(choice, ModeChoice) else choice


def completion_query(body: CompletionBody, headers: Headers) -> Query:
    """A prompt that is continued.

    Raises:
        PacelineError: a field is too large or contradicts another one.
    """
    most = body.max_tokens if body.max_tokens is not None else max(COMPLETION_TOKENS, body.min_tokens or 0)
    first, *others = _prompts(body)
    if (count := (1 + len(others)) * (body.n or 1)) > MOST_ANSWERS:
        raise invalid_field("prompt", f"{count} answers to all prompts, at most {MOST_ANSWERS} are given")
    more = {"others": tuple(others), "prompt_logprobs": scored_of(body), "constraint": constraint_of(body)}
    return _query(body, first, most, body.logprobs, headers, more)


def scored_of(body: CompletionBody) -> int | None:
    """How many alternatives to each token of its prompts a client wants to know; None where it wants no scores."""
    asked = (body.prompt_logprobs, body.logprobs if body.echo else None)
    return max((number for number in asked if number is not None), default=None)


def tools_of(body: ChatBody) -> tuple[ToolBody, ...]:
    """The functions that the model may ask for; a model that may not is not told of any.

    Raises:
        PacelineError: a function that may be called is none of the tools, or two that differ have one name.
    """
    choice = body.tool_choice
    if choice_of(body) == "none" or not (body.tools or isinstance(choice, AllowedChoice)):
        return ()
    check_something_left(body.tools or ())
    tools = body.functions()
    _check_names(tools)
    if isinstance(choice, AllowedChoice):
        names = [tool.function.name for tool in choice.allowed_tools.tools]
        for index, name in enumerate(names):
            if name not in {tool.function.name for tool in tools}:
                at = f"tool_choice.allowed_tools.tools[{index}].function.name"
                raise invalid_field(at, f"{name[:64]!r} is none of the tools")
        return tuple(tool for tool in tools if tool.function.name in names)
    return tools


def _check_names(tools: Sequence[ToolBody]) -> None:
    """Refuses a name of two functions whose arguments differ: nobody could tell which of them a call is for."""
    known: dict[str, ToolBody] = {}
    for tool in tools:
        function = tool.function
        other = known.setdefault(function.name, tool).function
        if (other.parameters or {}) != (function.parameters or {}):
            raise invalid_field(tool.name_place, f"{function.name[:64]!r} is another tool's name too")


def _query(
    body: Common, prompt: Prompt, max_tokens: int, logprobs: int | None, headers: Headers, more: dict[str, Any]
) -> Query:
    """What both kinds of bodies have, and `more` of one kind."""
    if body.prompt_logprobs is not None and body.stream:
        raise invalid_field("prompt_logprobs", "needs stream to be false")
    extension = body.paceline or Extension()
    return Query(
        model=body.model,
        prompt=prompt,
        sampling=_sampling(body),
        seed_given=body.seed is not None,
        stopping=_stopping(body, max_tokens),
        speculation=SpeculationParams(extension.speculation is False, extension.max_draft),
        logprobs=logprobs,
        priority=extension.priority or 0,
        timeout_s=headers.timeout_s,
        key=headers.key,
        migration=True,
        choices=body.n or 1,
        bad_words=tuple(body.bad_words or ()),
        allowed=tuple(body.allowed_token_ids or ()),
        shows_all=body.skip_special_tokens is False,
        shows_stop=bool(body.include_stop_str_in_output),
        **more,
    )


def _sampling(body: Common) -> SamplingParams:
    bias = body.logit_bias or {}
    check_count("logit_bias", len(bias), LIMITS.logit_bias)
    by_id = {int(token): value for token, value in bias.items()}
    given = {
        name: value for name in RANGES.keys() & body.model_fields_set if (value := getattr(body, name)) is not None
    }
    numbers: dict[str, Any] = {"temperature": 1.0, **given, "seed": (body.seed or 0) % 2**64}
    if numbers["temperature"] < LOWEST_TEMPERATURE:
        numbers["temperature"] = 0.0
    if numbers.get("top_p") == 0:
        numbers |= {"temperature": 0.0, "top_p": 1.0}
    if numbers.get("top_k") == -1:
        numbers["top_k"] = 0
    return SamplingParams(**numbers, logit_bias=tuple(sorted(by_id.items())))


def _stopping(body: Common, max_tokens: int) -> StopParams:
    stated = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    stop = tuple(text for text in stated if text)
    return StopParams(
        max_tokens=max_tokens,
        min_tokens=body.min_tokens or 0,
        stop=stop,
        stop_token_ids=tuple(body.stop_token_ids or ()),
        ignore_eos=bool(body.ignore_eos),
    )


def _prompts(body: CompletionBody) -> list[Prompt]:
    """All prompts of a completion: a text, token ids, or a list of either."""
    prompt = body.prompt
    if isinstance(prompt, str):
        return [TextPrompt(prompt, check_size(prompt))]
    if not prompt:
        raise invalid_field("prompt", "the prompt is empty")
    if all(isinstance(one, int) for one in prompt):
        check_count("prompt", len(prompt), LIMITS.prompt_ids)
        return [TokenPrompt(tuple(one for one in prompt if isinstance(one, int)))]
    check_count("prompt", len(prompt), MOST_ANSWERS)
    check_count("prompt", sum(len(one) for one in prompt if isinstance(one, list)), LIMITS.prompt_ids)
    return [made for one in prompt for made in _prompts(body.model_copy(update={"prompt": one}))]


def _chat(body: ChatBody) -> ChatPrompt:
    messages = [_message(index, message) for index, message in enumerate(body.messages)]
    kwargs = body.chat_template_kwargs or {}
    nulls = dict.fromkeys(name for name, value in kwargs.items() if value is None)
    given = {name: value for name, value in kwargs.items() if value is not None}
    tools = tools_of(body)
    with _named_as_sent([tool.place for tool in tools]):
        prompt = checked_chat(messages, [_tool(tool) for tool in tools], given)
    turn = {"add_generation_prompt": body.add_generation_prompt, "continue_final_message": body.continue_final_message}
    if body.continue_final_message:
        if messages[-1].role != "assistant" or messages[-1].tool_calls:
            raise invalid_field("continue_final_message", "the last message must be text of the assistant")
        if body.add_generation_prompt:
            raise invalid_field("continue_final_message", "contradicts add_generation_prompt")
    arguments = (
        _thinking(body) | prompt.arguments | nulls | {name: value for name, value in turn.items() if value is not None}
    )
    return replace(prompt, tools=tuple(tool.plain() for tool in tools), arguments=arguments)


@contextmanager
def _named_as_sent(places: Sequence[str]) -> Iterator[None]:
    """Refusals name tools by their places in what the client sent, for some of it may be left out."""
    try:
        yield
    except PacelineError as error:
        found = _TOOL.match(error.field)
        if found is None:
            raise
        field = f"prompt.chat.{places[int(found[1])]}{error.field[found.end() :]}"
        told = field + error.message.removeprefix(error.field)
        raise PacelineError(error.code, error.reason, told, field) from None


def _thinking(body: ChatBody) -> dict[str, Any]:
    """What templates read: a switch, and the effort's own word."""
    found: dict[str, Any] = {}
    if body.reasoning_effort is not None:
        found = {"enable_thinking": body.reasoning_effort not in NO_EFFORT, "reasoning_effort": body.reasoning_effort}
    if body.thinking is not None and body.thinking.type != "adaptive":
        found["enable_thinking"] = body.thinking.type == "enabled"
    if body.enable_thinking is not None:
        found["enable_thinking"] = body.enable_thinking
    return found


def _message(index: int, message: MessageBody) -> _Message:
    if message.content is None and message.role in ("system", "developer", "user"):
        raise invalid_field(f"messages[{index}].content", "is needed")
    text, thought = _content(index, message)
    calls = [(call.id, _called(call)) for call in message.tool_calls or ()]
    calls += [(None, message.function_call)] if message.function_call and not calls else []
    return _Message(
        role={"developer": "system", "function": "tool"}.get(message.role, message.role),
        content=text or ((message.refusal or "") if message.role == "assistant" else ""),
        tool_calls=tuple(_Call(identity or "", called.name, _arguments(called)) for identity, called in calls),
        tool_call_id=message.tool_call_id or "",
        name=message.name or "",
        reasoning_content=message.reasoning_content or message.reasoning or thought,
    )


def _content(index: int, message: MessageBody) -> tuple[str, str]:
    """Text of a message, and what was thought in it."""
    if message.content is None or isinstance(message.content, str):
        return message.content or "", ""
    found: dict[bool, list[str]] = {True: [], False: []}
    for place, part in enumerate(message.content):
        kind = part.type if part.type in ("refusal", "thinking") else "text"
        text = getattr(part, kind)
        if text is None and part.type != "redacted_thinking":
            raise invalid_field(f"messages[{index}].content[{place}].{kind}", "is needed")
        found[kind == "thinking"] += [text] if text else []
    return "\n".join(found[False]), "".join(found[True])


def _called(call: ToolCalled) -> FunctionCalled:
    """The function of a call; a tool that takes text of any form is one with that argument."""
    if call.function is None and call.custom is not None:
        return FunctionCalled(name=call.custom.name, arguments={"input": call.custom.input or ""})
    return call.function or FunctionCalled()


def _arguments(called: FunctionCalled) -> str:
    """Arguments as text; history may have them as JSON, or none."""
    given = called.arguments or ""
    return given if isinstance(given, str) else json.dumps(given)


def _tool(tool: ToolBody) -> _Tool:
    function = tool.function
    return _Tool(function.name, function.description or "", json.dumps(function.parameters or {}))
