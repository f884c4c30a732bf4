"""Every answer is taken when it is sent back: calls, thoughts and odd characters; 10,000 of them with --full."""

import json
import random

from services.common.request.sampling import FinishReason
from services.gateway.http.answers.chat import ChatAnswer
from services.gateway.http.reading.body import parsed
from services.gateway.http.reading.convert import Headers, chat_query
from services.gateway.http.schema.bodies import ChatBody
from services.gateway.parsing.form import chosen, forms
from services.gateway.streams.generation import Delta
from tests.unit.gateway.parsing.slips import TOOLS
from tests.unit.gateway.parsing.test_call_corpus import BODIES, CORPUS, EXCHANGE, final

ODD = (
    "\x00", "\x1f", "\ufffd", "\u2028", "\ud7ff", "\ue000", "\U0010ffff", "\u202e", "\\", '"', "{", "}", "<", ">", "\n",
    "</think>", "<think>", "<tool_call>", "</tool_call>", "<function=now>", "</function>", "<parameter=a>",
    "</parameter>", "<|python_tag|>", '{"name": "now", "arguments": ', "NaN", "1e999", "\\ud800", "'", "9" * 400,
)  # fmt: skip


def text_of(draw: random.Random) -> str:
    """Slips, pieces of them and odd characters in any order."""
    found = ""
    for _ in range(draw.randint(1, 4)):
        slip = draw.choice([*CORPUS.values()]).text
        at = draw.randint(0, len(slip)) if draw.random() < 0.5 else draw.choice((0, len(slip)))
        odd = "".join(draw.choices(ODD, k=draw.randint(0, 4)))
        found += draw.choice((slip, slip[:at] + odd + slip[at:], odd))
    return found


def no_number(name: str) -> None:
    raise AssertionError(f"JSON has no {name}")


def test_every_answer_may_be_sent_back(full: bool) -> None:
    draw = random.Random(5)
    names = sorted(forms())
    tools = [{"type": "function", "function": {"name": name, "parameters": TOOLS[name]}} for name in TOOLS]
    calls = 0
    for _ in range(10_000 if full else 400):
        answer = ChatAnswer(BODIES[False], EXCHANGE, lambda _: ("<think>", b""), chosen("", draw.choice(names)))
        answer.begin(0, (0,) if draw.random() < 0.3 else ())
        text = text_of(draw)
        at = draw.randint(0, len(text))
        for piece in (text[:at], text[at:]):
            assert not [*answer.messages(0, Delta(0, (), piece))]
        answer.messages(0, final(draw.choice((FinishReason.STOP_TOKEN, FinishReason.LENGTH, FinishReason.STOP_STRING))))
        message = json.loads(answer.whole())["choices"][0]["message"]
        results = []
        for call in message.get("tool_calls", ()):
            assert isinstance(json.loads(call["function"]["arguments"], parse_constant=no_number), dict)
            results.append({"role": "tool", "tool_call_id": call["id"], "content": "ok"})
        calls += len(results)
        chat = [{"role": "user", "content": "x"}, message, *results]
        raw = json.dumps({"model": "m", "messages": chat, "tools": tools}).encode()
        query = chat_query(parsed(ChatBody, raw), Headers())
        json.dumps(query.prompt.messages, allow_nan=False, ensure_ascii=False).encode()  # type: ignore[union-attr]
    assert calls > 100
