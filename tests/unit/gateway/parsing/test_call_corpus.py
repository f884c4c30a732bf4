"""Calls are whole, never lost and never half, however their text is cut, streamed or whole, in every form."""

import json
import sys
from collections.abc import Iterable
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pytest

from services.common.request.sampling import FinishReason
from services.gateway.http.answers.chat import ChatAnswer
from services.gateway.http.schema.bodies import ChatBody
from services.gateway.http.server.exchange import Exchange
from services.gateway.parsing import xml_call, xml_value
from services.gateway.parsing.calls import MOST_READ, CallSplitter
from services.gateway.parsing.form import chosen, forms
from services.gateway.parsing.output import CallEnd, CallPiece, Ending
from services.gateway.parsing.reasoning import ReasoningSplitter
from services.gateway.parsing.xml_tags import Tag, first_tag, tag_at
from services.gateway.streams.events import Delta, Final
from services.gateway.streams.journey import Totals
from services.gateway.targets.messages import Speculation, Usage
from tests.support.cases import each
from tests.unit.gateway.parsing.late_slips import LATE
from tests.unit.gateway.parsing.odd_tags import ODD_TAGS
from tests.unit.gateway.parsing.rare_slips import RARE
from tests.unit.gateway.parsing.slips import LONG, SLIPS, TOOLS, Slip

Outcome = tuple[str, str, list[tuple[str, Any]], str]
"""Thought, content, calls, finish."""
EXCHANGE = cast(Exchange, SimpleNamespace(request_id="r", created=0))
CORPUS = SLIPS | RARE | ODD_TAGS | LATE
MARK = "<think>\n"
MOST_EVENTS = 40
"""Calls and returns that a piece may cost."""


def body(stream: bool) -> ChatBody:
    tools = [{"type": "function", "function": {"name": name, "parameters": TOOLS[name]}} for name in TOOLS]
    asked = {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": stream, "tools": tools}
    return ChatBody.model_validate(asked)


BODIES = {stream: body(stream) for stream in (False, True)}


def final(reason: FinishReason) -> Final:
    return Final(reason, "", None, 1, 1, Totals(Usage(), Speculation()), "", 0)


def answered(slip: Slip, pieces: Iterable[str], reason: FinishReason, stream: bool) -> Outcome:
    """What a client has at the end."""
    answer = ChatAnswer(BODIES[stream], EXCHANGE, lambda _: (MARK, b""), chosen("", slip.form))
    answer.begin(0, (0,) if slip.opened else ())
    events = [event for piece in pieces for event in answer.messages(0, Delta(0, (), piece))]
    events += answer.messages(0, final(reason))
    if stream:
        return joined(events)
    assert not events
    choice = json.loads(answer.whole())["choices"][0]
    message = choice["message"]
    calls = [called(call["function"]) for call in message.get("tool_calls", [])]
    return message.get("reasoning_content", ""), message["content"] or "", calls, choice["finish_reason"]


def called(function: dict[str, str]) -> tuple[str, Any]:
    return function["name"], json.loads(function["arguments"])


def joined(events: Iterable[bytes]) -> Outcome:
    """What a client of a stream has; calls whose arguments are no JSON were cut, and the end says so."""
    text = {"reasoning_content": "", "content": ""}
    calls: list[dict[str, str]] = []
    finish = ""
    for event in events:
        choice = json.loads(event.removeprefix(b"data: "))["choices"][0]
        finish = choice["finish_reason"] or finish
        for name in text:
            text[name] += choice["delta"].get(name, "")
        for piece in choice["delta"].get("tool_calls", ()):
            if piece["index"] == len(calls):
                assert piece["id"] and piece["type"] == "function"
                calls.append({"name": piece["function"]["name"], "arguments": ""})
            assert piece["index"] == len(calls) - 1, "one call after the other"
            calls[-1]["arguments"] += piece["function"]["arguments"]
    whole = [call for call in calls if is_object(call["arguments"])]
    assert len(whole) == len(calls) or finish != "tool_calls"
    return text["reasoning_content"], text["content"], [called(call) for call in whole], finish


def is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


@each("name", CORPUS)
def test_a_text_holds_the_calls_that_the_model_meant(name: str) -> None:
    slip = CORPUS[name]
    expected = (slip.thought, slip.content, slip.calls, "tool_calls" if slip.calls else "stop")
    for stream in (False, True):
        for size in (len(slip.text), 1, 3, 7):
            pieces = [slip.text[at : at + size] for at in range(0, len(slip.text), size)]
            found = answered(slip, pieces, FinishReason.STOP_TOKEN, stream)
            cut = "no JSON" in name and slip.calls
            assert found == ((*expected[:3], "stop") if cut else expected)


@each("name", CORPUS)
def test_a_text_that_is_cut_holds_no_half_call(name: str, full: bool) -> None:
    """Cut at a seventh of the places and the last, with --full at all: whole, streamed in three or in characters.

    An odd step gives each text both reasons for a cut.
    """
    slip = CORPUS[name]
    for end in range(len(slip.text)) if full else cuts(name):
        text = slip.text[:end]
        reason = FinishReason.LENGTH if end % 2 else FinishReason.STOP_STRING
        whole = answered(slip, [text], reason, stream=False)
        first, second = end // 3, end - end // 5
        pieces = [*text] if full else [text[:first], text[first:second], text[second:]]
        assert whole == answered(slip, pieces, reason, stream=True)
        thought, content, calls, finish = whole
        assert calls == slip.calls[: len(calls)] or slip.shows_ends
        kept = without_blanks(thought + content)
        if not calls:
            thinks = slip.opened or slip.text.startswith("<think>")
            assert thoughtless(kept) == thoughtless(text) if thinks else kept == without_blanks(text)
            assert finish == ("length" if reason is FinishReason.LENGTH else "stop")


def cuts(name: str) -> list[int]:
    """A seventh of the places of a text, from one that its name gives, and the last."""
    size = len(CORPUS[name].text)
    return [*range(sum(name.encode()) % 7, size - 1, 7), size - 1]


def test_each_text_is_cut_for_both_reasons_and_before_its_last_character() -> None:
    for name, slip in CORPUS.items():
        places = cuts(name)
        assert places[-1] == len(slip.text) - 1, name
        assert len(slip.text) < 15 or {end % 2 for end in places} == {0, 1}, name


def thoughtless(text: str) -> str:
    """A text without blanks and the tags of thoughts."""
    return without_blanks(text).replace("<think>", "").replace("</think>", "")


def without_blanks(text: str) -> str:
    return "".join(text.split())


def test_every_form_has_slips() -> None:
    assert {slip.form for slip in CORPUS.values()} == set(forms())
    assert len(RARE) >= 60


@pytest.mark.parametrize("form", sorted(forms()))
def test_the_work_is_linear_in_the_text(form: str) -> None:
    """Calls and returns of functions for calls of 20 and of 40 thousand characters in pieces of four."""
    few, many = (calls_of_functions(form, LONG[form](size)) for size in (20_000, 40_000))
    assert many < 2.1 * few
    assert many < 40_000 / 4 * MOST_EVENTS


def calls_of_functions(form: str, text: str) -> int:
    splitter = long_splitter(form)
    count = 0

    def counted(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(counted)
    try:
        parts = [part for at in range(0, len(text), 4) for part in splitter.push(text[at : at + 4])]
    finally:
        sys.setprofile(None)
    parts += splitter.finish(Ending.ITSELF)
    assert len([part for part in parts if isinstance(part, CallEnd)]) == 1
    assert len([part for part in parts if isinstance(part, CallPiece)]) > len(text) / 6, "told as it is written"
    return count


def long_splitter(form: str) -> ReasoningSplitter:
    def calls() -> CallSplitter:
        return CallSplitter(chosen("", form), TOOLS)

    return ReasoningSplitter(calls(), False, calls)


@pytest.mark.parametrize("unit", ["</parameter>", "</function>\n", "x</parameter>", "</tool_call>"])
def test_no_tag_is_looked_for_in_all_that_is_left(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text in one piece is read in parts: what is behind a tag was copied for each of them."""
    looked = list[int]()

    def noted(text: str, at: int = 0) -> Tag | None:
        looked.append(len(text))
        return tag_at(text, at)

    def noted_first(text: str, within: bool = True) -> tuple[int, bool]:
        looked.append(len(text))
        return first_tag(text, within)

    monkeypatch.setattr(xml_call, "tag_at", noted)
    for module in (xml_call, xml_value):
        monkeypatch.setattr(module, "first_tag", noted_first)
    value = unit * 3000
    text = f"<tool_call>\n<function=write>\n<parameter=content>\n{value}\n</parameter>\n</function>\n</tool_call>"
    splitter = long_splitter("qwen_xml")
    parts = [*splitter.push(text), *splitter.finish(Ending.ITSELF)]
    written = "".join(part.text for part in parts if isinstance(part, CallPiece))
    assert json.loads(written) == {"content": value}
    assert 2 * MOST_READ > max(looked) > len(unit)
    assert sum(looked) < 3000 * 2 * MOST_READ, "each tag of the value has at most one look"
