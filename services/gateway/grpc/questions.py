"""What clients ask over gRPC, as plain values; sizes are checked before contents are read."""

from services.common.pb.paceline.v1 import inference_pb2
from services.common.request.constraint import Constraint, Form
from services.common.request.errors import invalid_field, unsupported
from services.common.request.grammar import choice_constraint
from services.common.request.limits import LIMITS
from services.common.request.sampling_convert import (
    sampling_from_pb,
    speculation_from_pb,
    stopping_from_pb,
)
from services.common.request.validation import check_count, plain
from services.gateway.intake.query import Argument, ChatPrompt, Prompt, Query, TextPrompt, TokenPrompt
from services.gateway.prompts.chat_check import check_counts, check_size, checked_chat

STRUCTURED = "structured_output"
MOST_SECONDS = 315_576_000_000
"""The longest time that a Duration may state, some 10,000 years."""


def query(request: inference_pb2.GenerateRequest, default_max_tokens: int) -> Query:
    """One call of Generate; the default counts where the client gave no max_tokens.

    Raises:
        PacelineError: a field is too large, missing or reserved.
    """
    _check_reserved(request)
    check_count("bad_words", len(request.bad_words), LIMITS.bad_words)
    check_count("allowed_token_ids", len(request.allowed_token_ids), LIMITS.allowed_token_ids)
    return Query(
        model=request.model,
        prompt=prompt(request.prompt),
        sampling=sampling_from_pb(request.sampling),
        seed_given=request.sampling.HasField("seed"),
        stopping=stopping_from_pb(request.stopping, max(default_max_tokens, request.stopping.min_tokens)),
        speculation=speculation_from_pb(request.speculation),
        logprobs=request.logprobs if request.HasField("logprobs") else None,
        priority=request.priority,
        timeout_s=_timeout(request),
        key=request.idempotency_key,
        migration=request.migration if request.HasField("migration") else True,
        constraint=_constraint(request.structured_output) if request.HasField("structured_output") else None,
        prompt_logprobs=request.prompt_logprobs if request.HasField("prompt_logprobs") else None,
        bad_words=tuple(request.bad_words),
        allowed=tuple(request.allowed_token_ids),
        budget=request.thinking_budget if request.HasField("thinking_budget") else None,
        thinks=request.HasField("thinking_budget"),
        tells_prompt=request.return_token_ids,
        counts_thoughts=True,
    )


def prompt(message: inference_pb2.Prompt) -> Prompt:
    """One prompt, its size known.

    Raises:
        PacelineError: it is missing, or too large to look at.
    """
    form = message.WhichOneof("form")
    if form == "text":
        return text_prompt(message.text)
    if form == "tokens":
        check_count("prompt.tokens", len(message.tokens.ids), LIMITS.prompt_ids)
        return TokenPrompt(tuple(message.tokens.ids))
    if form == "chat":
        return chat_prompt(message.chat)
    raise invalid_field("prompt", "one of text, tokens and chat is needed")


def text_prompt(text: str) -> TextPrompt:
    """Plain text, its size known.

    Raises:
        PacelineError: it is too large to look at.
    """
    return TextPrompt(text, check_size(text))


def _check_reserved(request: inference_pb2.GenerateRequest) -> None:
    if request.constraint:
        raise unsupported("constraint", "is not used: structured_output says what the output must be like")
    if request.HasField("forced_tokens"):
        raise unsupported("forced_tokens", "forced output is not built yet")


def _constraint(message: inference_pb2.Constraint) -> Constraint:
    form = message.WhichOneof("form")
    if form is None:
        raise invalid_field(STRUCTURED, "one of json_schema, regex, choices and grammar is needed")
    field = f"{STRUCTURED}.{form}"
    if form == "choices":
        return choice_constraint(message.choices.texts, f"{field}.texts")
    kind = {"json_schema": Form.JSON, "regex": Form.REGEX, "grammar": Form.GRAMMAR}[form]
    return Constraint(kind, getattr(message, form), field)


def _timeout(request: inference_pb2.GenerateRequest) -> float | None:
    if not request.HasField("timeout"):
        return None
    seconds = request.timeout.seconds + request.timeout.nanos / 1e9
    if not (0.0 < seconds <= MOST_SECONDS):
        raise invalid_field("timeout", f"{plain(seconds)} s is not in (0, {MOST_SECONDS}]")
    return seconds


def chat_prompt(chat: inference_pb2.Chat) -> ChatPrompt:
    """One chat, its size known.

    Raises:
        PacelineError: INVALID_FIELD; the field is named, with the index of its message or tool.
    """
    check_counts(len(chat.messages), len(chat.tools), len(chat.template_arguments))
    arguments = {name: _value(argument) for name, argument in chat.template_arguments.items()}
    return checked_chat(chat.messages, chat.tools, arguments)


def _value(argument: inference_pb2.TemplateArgument) -> Argument | None:
    kind = argument.WhichOneof("value")
    value: Argument | None = None if kind is None else getattr(argument, kind)
    return value
