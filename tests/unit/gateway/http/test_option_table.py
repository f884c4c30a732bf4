"""The table of options is what the gateway does: every row is tried."""

import json
import logging
from typing import Any

import pytest

from services.common.request.errors import PacelineError
from services.gateway.http.reading.body import parsed
from services.gateway.http.reading.convert import Headers, chat_query, completion_query
from services.gateway.http.schema.bodies import ChatBody, Common, CompletionBody
from services.gateway.http.schema.options import (
    IGNORED,
    MOST_CLIENTS,
    MOST_TENANTS,
    OTHERS,
    REFUSED,
    IgnoredLog,
    options,
)
from tests.support.cases import each
from tests.support.told import told

CHAT = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
COMPLETION = {"model": "m", "prompt": "x"}
KINDS: list[tuple[type[Common], dict[str, Any]]] = [(ChatBody, CHAT), (CompletionBody, COMPLETION)]
VALUES: list[Any] = [None, True, -1, 1.5, "x", [], [{}], {"a": [None]}]
TOP = [option for option in options() if "." not in option.name]


def taken(kind: type[Common], body: dict[str, Any]) -> Common:
    return parsed(kind, json.dumps(body).encode())


@each("option", [option for option in TOP if option.state == "ignored"])
def test_what_is_ignored_changes_nothing_whatever_it_is(option: Any) -> None:
    for kind, body in KINDS:
        if option.chat if kind is ChatBody else option.completions:
            plain = taken(kind, body)
            for value in VALUES:
                assert taken(kind, body | {option.name: value}) == plain
        else:
            with pytest.raises(PacelineError, match=option.name):
                taken(kind, body | {option.name: 1})


@each("option", [option for option in TOP if option.state == "refused"])
def test_what_is_refused_is_named_with_what_to_send_instead(option: Any) -> None:
    for kind, body in KINDS:
        with pytest.raises(PacelineError) as refusal:
            taken(kind, body | {option.name: "x"})
        assert option.name in str(refusal.value) and REFUSED[option.name] in str(refusal.value)


@each("option", [option for option in TOP if option.state == "honoured"])
def test_what_is_honoured_is_known_where_the_table_says(option: Any) -> None:
    """Null is as good as absent, where the option is not needed."""
    for kind, body in KINDS:
        served = option.chat if kind is ChatBody else option.completions
        if option.name not in body:
            assert taken(kind, body | {option.name: None}) == taken(kind, body)
        if not served:
            with pytest.raises(PacelineError, match=option.name):
                taken(kind, body | {option.name: "x"})


def test_the_table_has_the_fields_inside_objects_and_lists() -> None:
    names = {option.name: option.state for option in options()}
    assert names["stream_options.include_usage"] == "honoured"
    assert names["messages[].content[].cache_control"] == "ignored"
    assert names["tools[].function.strict"] == "honoured"
    assert "tools[].name" not in names, "a field of what is left out is not honoured"
    assert len(names) == len(options())


def test_a_client_has_one_line_for_each_ignored_option(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = IgnoredLog()
    options_sent = {"user": "u", "store": True, "stream": True, "stream_options": {"include_obfuscation": False}}
    for agent in ("one", "one", "two"):
        log.tell("tenant", agent, taken(ChatBody, CHAT | options_sent))
        log.tell("tenant", agent, taken(ChatBody, CHAT | {"temperature": 1}))
    said = [(vars(record)["user_agent"], vars(record)["option"]) for record in told(caplog)]
    names = ["store", "stream_options.include_obfuscation", "user"]
    assert said == [(agent, name) for agent in ("one", "two") for name in names]
    assert set(names) <= IGNORED


def test_clients_that_the_log_remembers_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """Of each tenant: who invents names of clients takes no line from others, and no option's first from its own."""
    caplog.set_level(logging.INFO)
    log = IgnoredLog()
    body, other = (taken(ChatBody, CHAT | {name: "u"}) for name in ("user", "safety_identifier"))
    for number in range(2 * MOST_CLIENTS):
        log.tell("inventor", f"agent {number}", body)
    assert len(told(caplog)) == MOST_CLIENTS + 1
    for tenant, agent in (("inventor", "late"), ("another", "late")):
        caplog.clear()
        log.tell(tenant, agent, other)
        said = [(vars(record)["user_agent"], vars(record)["option"]) for record in told(caplog)]
        assert said == [(OTHERS if tenant == "inventor" else "late", "safety_identifier")]


def test_tenants_that_the_log_remembers_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log, body = IgnoredLog(), taken(ChatBody, CHAT | {"user": "u"})
    for number in range(2 * MOST_TENANTS):
        log.tell(f"tenant {number}", "agent", body)
    assert [vars(record)["tenant"] for record in told(caplog)[-2:]] == [f"tenant {MOST_TENANTS - 1}", OTHERS]


def test_queries_are_the_same_with_ignored_options() -> None:
    extra = dict.fromkeys((name for name in IGNORED if "." not in name), "x")
    chats = [chat_query(taken(ChatBody, CHAT | more), Headers()) for more in ({}, extra)]  # type: ignore[arg-type]
    assert chats[0] == chats[1]
    only = {option.name: "x" for option in TOP if option.state == "ignored" and option.completions}
    texts = [completion_query(taken(CompletionBody, COMPLETION | more), Headers()) for more in ({}, only)]  # type: ignore[arg-type]
    assert texts[0] == texts[1]
