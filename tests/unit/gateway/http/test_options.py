"""Options over HTTP: each is honoured, ignored as documented, or refused by its name."""

import json
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from services.common.request.errors import (
    Code,
    PacelineError,
    Reason,
    deadline,
    invalid_field,
    overloaded,
    unavailable,
)
from services.gateway.http.endpoints.openapi import document
from services.gateway.http.reading.body import parsed
from services.gateway.http.reading.convert import Headers, chat_query, completion_query
from services.gateway.http.schema.bodies import ChatBody, CompletionBody
from services.gateway.http.schema.errors import error_headers, error_reply, public_name, status_of
from services.gateway.intake.query import ChatPrompt, Query
from services.gateway.streams.choices import seed_of
from tests.support.cases import each

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
COMPLETION: dict[str, Any] = {"model": "m", "prompt": "hi"}
USER = {"role": "user", "content": "x"}
FUNCTION = {"name": "f"}
PAGE = (Path(__file__).resolve().parents[4] / "docs" / "use.md").read_text()


def refused(kind: Any, convert: Any, body: dict[str, Any]) -> str | None:
    """The parameter that the refusal of a body names."""
    with pytest.raises(PacelineError) as error:
        convert(parsed(kind, json.dumps(body).encode()), Headers())
    assert status_of(error.value) == HTTPStatus.BAD_REQUEST
    return error_reply(error.value)["error"]["param"]


@each(
    ("option", "value", "name"),
    [
        ("foo", 1, "foo"),
        ("functions", [FUNCTION], "functions"),
        ("response_format", {"type": "yaml"}, "response_format.type"),
        ("response_format", {"type": "json_schema", "json_schema": {}}, "response_format.json_schema.schema"),
        ("structured_outputs", {"regex": "a", "choice": ["a"]}, "structured_outputs.choice"),
        ("structured_outputs", {"choice": []}, "structured_outputs.choice"),
        ("guided_choice", ["a", ""], "guided_choice"),
        ("tool_choice", "required", "tool_choice"),
        ("tool_choice", "any", "tool_choice"),
        ("tool_choice", {"type": "function", "function": {"name": "f"}}, "tool_choice"),
        ("tools", [{"type": "web_search"}], "tools[0].type"),
        ("tools", [{"type": "function", "function": {"name": ""}}], "tools[0].function.name"),
        ("temperature", 2.1, "temperature"),
        ("temperature", "1", "temperature"),
        ("temperature", True, "temperature"),
        ("n", 9, "n"),
        ("n", 0, "n"),
        ("max_tokens", 0, "max_tokens"),
        ("max_tokens", 1.5, "max_tokens"),
        ("top_logprobs", 3, "top_logprobs"),
        ("logit_bias", {"a": 1}, "logit_bias.a"),
        ("seed", 2**64, "seed"),
        ("paceline", {"foo": 1}, "paceline.foo"),
        ("chat_template_kwargs", {"messages": 1}, "chat_template_kwargs['messages']"),
        ("messages", [], "messages"),
        ("messages", [{"role": "user"}], "messages[0].content"),
        ("messages", [USER | {"content": [{"type": "image_url"}]}], "messages[0].content[0].type"),
        ("model", None, "model"),
        ("priority", 1, "priority"),
        ("paceline", {"priority": 101}, "paceline.priority"),
        ("modalities", ["text", "audio"], "modalities[1]"),
        ("reasoning_effort", "huge", "reasoning_effort"),
        ("top_k", -2, "top_k"),
        ("continue_final_message", True, "continue_final_message"),
    ],
)
def test_an_option_of_a_chat_is_refused_by_its_name(option: str, value: object, name: str) -> None:
    found = refused(ChatBody, chat_query, CHAT | {option: value})
    assert found == name or (found or "").startswith(f"{name}[")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("best_of", 2),
        ("suffix", "x"),
        ("prompt", []),
        ("prompt", ["a"] * 129),
        ("logprobs", 21),
        ("messages", [USER]),
    ],
)
def test_an_option_of_a_completion_is_refused_by_its_name(option: str, value: object) -> None:
    assert refused(CompletionBody, completion_query, COMPLETION | {option: value}) == option


IGNORED = (
    "user", "store", "metadata", "service_tier", "verbosity", "prediction", "prompt_cache_key",
    "prompt_cache_options", "prompt_cache_retention", "safety_identifier",
)  # fmt: skip


def asked(**options: Any) -> Query:
    return chat_query(parsed(ChatBody, json.dumps(CHAT | options).encode()), Headers())


@each(
    "options",
    [
        {"modalities": ["text"]},
        {"top_k": -1},
        {"parallel_tool_calls": False},
        {"stream": True, "stream_options": {"continuous_usage_stats": True, "include_obfuscation": False}},
        {"messages": [USER | {"content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]}]},
        {"tools": []},
        {"stream_options": {"include_usage": True}},
        {"stop": ""},
        {"stop": ["", ""]},
        {"top_logprobs": 0},
        {"tool_choice": {"type": "auto"}},
        {"add_generation_prompt": None},
    ],
)
def test_what_cannot_change_the_text_changes_no_query(options: dict[str, Any]) -> None:
    plain = asked(messages=[USER | {"content": "hi"}])
    assert asked(**({"messages": [USER | {"content": "hi"}]} | options)) == plain


def test_every_temperature_is_taken() -> None:
    greedy = asked(temperature=0)
    assert asked(temperature=1e-6) == asked(temperature=1e-300) == greedy
    assert asked(temperature=2).sampling.temperature == 2


def test_a_tool_is_told_as_its_client_wrote_it() -> None:
    function = {"parameters": {"type": "object", "b": 1, "a": [None]}, "strict": True, "name": "f"}
    tool = {"function": function | {"description": None}, "type": "function", "cache_control": {"type": "ephemeral"}}
    prompt = asked(tools=[tool]).prompt
    assert isinstance(prompt, ChatPrompt)
    assert json.dumps(prompt.tools[0]) == json.dumps({"function": function, "type": "function"})


def test_an_effort_is_a_switch_or_a_word_of_the_template() -> None:
    found = [asked(reasoning_effort=effort).prompt.arguments for effort in ("none", "minimal", "low", "high")]  # type: ignore[union-attr]
    assert [one["enable_thinking"] for one in found] == [False, False, True, True]
    assert found[3]["reasoning_effort"] == "high"
    own = asked(reasoning_effort="none", chat_template_kwargs={"enable_thinking": True, "x": [1, None], "y": None})
    assert own.prompt.arguments == {"enable_thinking": True, "reasoning_effort": "none", "x": [1, None], "y": None}  # type: ignore[union-attr]


@pytest.mark.parametrize("option", IGNORED)
def test_what_is_ignored_changes_nothing_and_is_documented(option: str) -> None:
    plain = chat_query(parsed(ChatBody, json.dumps(CHAT).encode()), Headers())
    for value in (None, "x", {"a": [1]}, 5):
        assert chat_query(parsed(ChatBody, json.dumps(CHAT | {option: value}).encode()), Headers()) == plain
    assert f"`{option}`" in PAGE


def test_an_answer_may_be_sent_back_with_what_clients_add_to_it() -> None:
    function = {"name": "f", "arguments": "{}"}
    call: dict[str, Any] = {"id": "c", "type": "function", "function": function}
    answer: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [call]}
    parsed_call = call | {"function": {**function, "parsed_arguments": {}}}
    added = answer | {"tool_calls": [parsed_call], "parsed": None, "provider_specific_fields": {"refusal": None}}
    plain, more = (
        chat_query(parsed(ChatBody, json.dumps(CHAT | {"messages": [USER, one]}).encode()), Headers())
        for one in (answer, added)
    )
    assert plain == more
    for name in ("parsed", "parsed_arguments", "provider_specific_fields"):
        assert f".{name}`" in PAGE


def test_every_option_that_is_taken_stands_in_the_page() -> None:
    options = {*ChatBody.model_fields, *CompletionBody.model_fields} - {"model", "messages", "prompt", "stream_options"}
    assert not [option for option in options if f"`{option}`" not in PAGE]


def test_null_is_as_good_as_absent() -> None:
    nothing = {name: None for name in ChatBody.model_fields if name not in CHAT}
    with_null = chat_query(parsed(ChatBody, json.dumps(CHAT | nothing).encode()), Headers())
    assert with_null == chat_query(parsed(ChatBody, json.dumps(CHAT).encode()), Headers())


def test_refusals_have_openais_statuses_types_and_codes() -> None:
    full = PacelineError(Code.RESOURCE_EXHAUSTED, Reason.TENANT_LIMIT, "full", retry_after_s=0.2)
    for error, status, kind, code in (
        (invalid_field("sampling.top_k", "bad"), 400, "invalid_request_error", "invalid_field"),
        (
            PacelineError(Code.UNAUTHENTICATED, Reason.UNAUTHENTICATED, "no"),
            401,
            "authentication_error",
            "invalid_api_key",
        ),
        (PacelineError(Code.NOT_FOUND, Reason.UNKNOWN_MODEL, "no"), 404, "invalid_request_error", "model_not_found"),
        (full, 429, "rate_limit_error", "rate_limit_exceeded"),
        (overloaded("full", 3.2), 429, "rate_limit_error", "rate_limit_exceeded"),
        (unavailable(Reason.NO_TARGET, "none"), 503, "server_error", "no_target"),
        (deadline("late"), 504, "server_error", "deadline"),
    ):
        told = error_reply(error)["error"]
        assert (status_of(error), told["type"], told["code"]) == (status, kind, code)
    assert (b"retry-after", b"1") in error_headers(full)
    assert (b"retry-after", b"4") in error_headers(overloaded("full", 3.2))
    assert error_reply(invalid_field("sampling.top_k", "bad"))["error"]["message"] == "top_k: bad"


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("stopping.stop", "stop"),
        ("prompt.chat", "messages"),
        ("prompt.chat.messages[3].role", "messages[3].role"),
        ("prompt.chat.messages[3].tool_calls[1].arguments", "messages[3].tool_calls[1].function.arguments"),
        ("prompt.chat.messages[3].tool_calls[1].id", "messages[3].tool_calls[1].id"),
        ("prompt.chat.tools[0].name", "tools[0].function.name"),
        ("prompt.chat.template_arguments['x']", "chat_template_kwargs['x']"),
        ("speculation.max_draft", "paceline.max_draft"),
        ("priority", "paceline.priority"),
        ("prompt", "prompt"),
        ("messages[3].tool_calls[1].function.foo", "messages[3].tool_calls[1].function.foo"),
    ],
)
def test_fields_have_the_names_that_their_clients_know(field: str, name: str) -> None:
    assert public_name(field) == name


def test_choices_have_seeds_of_their_own() -> None:
    assert seed_of(7, 0) == 7
    assert len({seed_of(seed, choice) for seed in (0, 7, 2**64 - 1) for choice in range(8)}) == 24
    assert all(seed_of(2**64 - 1, choice) < 2**53 for choice in range(1, 8)), "a float holds it"


def test_the_document_names_every_form_that_it_refers_to() -> None:
    text = json.dumps(document())
    forms = document()["components"]["schemas"]
    referred = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert referred <= set(forms)
    assert forms["ChatBody"]["additionalProperties"] is False
