"""What Anthropic's clients say beside a message: taken where it changes no text, else refused in words they read."""

import json
from typing import Any

import pytest

from services.common.request.errors import PacelineError
from services.gateway.http.endpoints.message_bodies import CountBody
from services.gateway.http.endpoints.messages import read_message, refusal
from services.gateway.http.reading.body import parsed

SAID: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}
COUNTED = {name: SAID[name] for name in ("model", "messages")}
MEANS_NOTHING = (
    "billing_policy", "cache_control", "container", "context_management", "diagnostics", "fallback_credit_token",
    "fallbacks", "inference_geo", "metadata", "service_tier", "speed", "user_profile_id", "workspace_id",
)  # fmt: skip
OF_COUNTS = ("billing_policy", "cache_control", "compaction", "context_management", "user_profile_id", "workspace_id")


def refused(**fields: Any) -> dict[str, Any]:
    with pytest.raises(PacelineError) as caught:
        read_message(bytearray(json.dumps(SAID | fields).encode()))
    return dict(refusal(caught.value)["error"])


@pytest.mark.parametrize("value", ["default", {"type": "x", "more": [1]}, [{"model": "other"}]])
def test_what_changes_no_text_is_taken(value: object) -> None:
    given = dict.fromkeys(MEANS_NOTHING, value)
    chat = read_message(bytearray(json.dumps(SAID | given).encode()))
    assert chat == read_message(bytearray(json.dumps(SAID).encode()))
    assert parsed(CountBody, json.dumps(COUNTED | dict.fromkeys(OF_COUNTS, value)).encode()).model == "m"


@pytest.mark.parametrize("thread", [{"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}])
def test_a_thread_is_refused_in_the_form_behind_which_a_client_sends_all_messages(thread: dict[str, str]) -> None:
    """That is what Anthropic's tool runner does by its defaults."""
    error = refused(thread=thread)
    assert error["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    assert error["type"] == "invalid_request_error"
    assert error["message"].startswith("thread: ")


def test_a_summary_is_refused_by_its_name_and_other_refusals_have_no_details() -> None:
    assert refused(compaction={"type": "summary"})["message"].startswith("compaction: ")
    assert "details" not in refused(compaction={})
    assert refused(thread="create")["message"].startswith("thread: Input should be")
    assert read_message(bytearray(json.dumps(SAID | {"thread": None, "compaction": None}).encode())).model == "m"
