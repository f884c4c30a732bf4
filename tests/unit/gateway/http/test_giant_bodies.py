"""Any body that the wire allows becomes few objects: what a body may hold is counted before it is built."""

import json
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from services.common.request.errors import PacelineError
from services.common.serving.channel import MAX_CLIENT_MESSAGE_BYTES
from services.gateway.http.endpoints.message_bodies import MessagesBody, chat_of
from services.gateway.http.endpoints.response_bodies import ResponsesBody, read_response
from services.gateway.http.reading.body import parsed
from services.gateway.http.reading.convert import Headers, chat_query, completion_query
from services.gateway.http.schema.bodies import ChatBody, CompletionBody
from services.gateway.http.schema.errors import error_reply
from services.gateway.intake.growth_guard import give_back
from tests.support.giant_bodies import GiantBodies

GROWN_KIB = 40 * 1024
CPU_S = 1.0
REFUSAL_BYTES = 2048
ENDPOINTS: dict[Any, Callable[[bytes], Any]] = {
    ChatBody: lambda body: chat_query(parsed(ChatBody, bytearray(body)), Headers()),
    CompletionBody: lambda body: completion_query(parsed(CompletionBody, bytearray(body)), Headers()),
    MessagesBody: lambda body: chat_query(chat_of(parsed(MessagesBody, bytearray(body))), Headers()),
    ResponsesBody: lambda body: chat_query(read_response(bytearray(body)), Headers()),
}
SAMPLE: dict[Any, int] = {ChatBody: 14, CompletionBody: 14}
"""Every so many-th body, without --full; fewer of those that are translated into chats."""

OTHERS_SAMPLE = 47


def peak_kib() -> int:
    """The most memory that this process held since the peak was forgotten."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def forget_peak() -> None:
    """From now on the peak is that of what follows."""
    Path("/proc/self/clear_refs").write_text("5")


def read(kind: Any, body: bytes) -> str:
    """The refusal of a body, empty where it is taken."""
    try:
        ENDPOINTS[kind](body)
    except PacelineError as error:
        return json.dumps(error_reply(error))
    return ""


@pytest.mark.parametrize("kind", ENDPOINTS)
def test_no_body_becomes_many_objects(kind: Any, full: bool, report_counts: Callable[[str, int], None]) -> None:
    read(kind, b"{}")
    sizes = (MAX_CLIENT_MESSAGE_BYTES, 1 << 20) if full else (1 << 19,)
    step = 1 if full else SAMPLE.get(kind, OTHERS_SAMPLE)
    for name, body in chain.from_iterable(GiantBodies(kind, size, step) for size in sizes):
        give_back()
        forget_peak()
        before, began = peak_kib(), time.thread_time()
        refusal = read(kind, body)
        used_s = time.thread_time() - began
        assert peak_kib() - before <= (GROWN_KIB if full else GROWN_KIB // 4), name
        assert len(refusal) <= REFUSAL_BYTES, (name, refusal[:REFUSAL_BYTES])
        assert not full or used_s <= CPU_S, (name, used_s)
        report_counts("giant_bodies", 1)


LETTERS = "\U0001f600" + "a" * 3900
IN_PARTS: dict[Any, Callable[[list[str]], dict[str, Any]]] = {
    MessagesBody: lambda texts: {
        "max_tokens": 5,
        "messages": [
            {"role": "assistant", "content": [{"type": "thinking", "thinking": text} for text in texts]},
        ],
    },
    ResponsesBody: lambda texts: {
        "input": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]} for text in texts]
    },
}


@pytest.mark.parametrize("kind", IN_PARTS)
def test_a_text_in_a_thousand_parts_takes_as_long_as_one_of_their_size(kind: Any) -> None:
    def took_s(texts: list[str]) -> float:
        body = json.dumps({"model": "m"} | IN_PARTS[kind](texts), ensure_ascii=False).encode()
        began = time.thread_time()
        assert read(kind, body) == ""
        return time.thread_time() - began

    one_s, parts_s = (min(took_s(texts) for _ in range(3)) for texts in ([LETTERS * 1000], [LETTERS] * 1000))
    assert parts_s <= 10 * one_s + 0.05


@pytest.mark.parametrize("kind", [MessagesBody, ResponsesBody])
def test_a_text_that_is_judged_again_takes_no_more_memory_for_its_letters(kind: Any) -> None:
    fields = {MessagesBody: b'"max_tokens":5,"messages":[]', ResponsesBody: b'"input":"x"'}
    body = b'{"model":"m",%b,"presence_penalty":"%b"}' % (fields[kind], "\u00e9".encode() * (1 << 20))
    read(kind, b"{}")
    forget_peak()
    before = peak_kib()
    assert "presence_penalty" in read(kind, body)
    assert peak_kib() - before <= GROWN_KIB // 4, "six times as much with escapes"
