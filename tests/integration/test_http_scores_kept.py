"""Log-probabilities that answers keep until they are whole are bounded, by call and in all, and freed with the call."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from services.common.request.limits import LIMITS
from services.gateway.http.answers import kept
from services.gateway.targets.attempt import ALTERNATIVES, Outbox
from services.gateway.targets.messages import PositionLogprobs, Update
from tests.integration.http_stack import CHAT, COMPLETIONS, chat, completion, serving
from tests.integration.test_gateway_stream import until
from tests.support.fakes_target import FakeTarget
from tests.support.http_client import connected

TOKENS = 40
JSON = {"content-type": "application/json"}


def asked(path: str, best: int, **fields: Any) -> dict[str, Any]:
    """A call that tells so many alternatives."""
    if path == CHAT:
        return chat(max_tokens=TOKENS, logprobs=True, top_logprobs=best, **fields)
    return completion(max_tokens=TOKENS, logprobs=best, **fields)


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    assert kept.KEPT._all == 0
    yield
    assert kept.KEPT._all == 0


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_a_whole_answer_keeps_so_many_and_a_stream_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    async with serving(tmp_path, [FakeTarget(pace_s=0.0)]) as (_, http):
        for best in (0, 1, 4):
            for choices in (1, 2):
                count = choices * TOKENS * (1 + best)
                for most, status in ((count, 200), (count - 1, 400)):
                    monkeypatch.setattr(kept, "LIMITS", replace(LIMITS, prompt_scores=most))
                    reply = await http.post(path, asked(path, best, n=choices))
                    assert reply.status == status, reply.body
                    if status == 400:
                        assert reply.error["param"] == ("top_logprobs" if path == CHAT else "logprobs")
                events = [one async for one in http.stream(path, asked(path, best, n=choices))]
                assert events[-1] == "[DONE]"


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_a_whole_answer_tells_what_its_stream_tells(tmp_path: Path, path: str) -> None:
    async with serving(tmp_path, [FakeTarget(pace_s=0.0)]) as (_, http):
        for best in (0, 3):
            whole = (await http.post(path, asked(path, best))).json["choices"][0]["logprobs"]
            pieces = [
                one["choices"][0]["logprobs"] async for one in http.stream(path, asked(path, best)) if one != "[DONE]"
            ]
            for name, values in whole.items():
                parts = [piece[name] for piece in pieces if piece and piece[name]]
                assert values == ([one for part in parts for one in part] or None), name
            assert len(whole["content" if path == CHAT else "tokens"]) == TOKENS


async def test_all_answers_together_keep_so_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(tmp_path, [FakeTarget(pace_s=0.0)]) as (one, http):
        monkeypatch.setattr(kept.KEPT, "_most", 3 * TOKENS * 2)
        one.targets[0].hold(20)
        calls = [asyncio.create_task(http.post(COMPLETIONS, asked(COMPLETIONS, 1))) for _ in range(4)]
        await until(lambda: one.targets[0].active == 4)
        await asyncio.sleep(0.1)
        one.targets[0].go_on()
        replies = [await call for call in calls]
        assert {reply.status for reply in replies} >= {200, 429}
        assert all("retry-after" in reply.headers for reply in replies if reply.status == 429)


async def test_what_was_kept_is_free_when_a_client_goes(tmp_path: Path) -> None:
    async with serving(tmp_path, [FakeTarget(pace_s=0.0)]) as (one, http):
        one.targets[0].hold(20)
        async with connected(http.address) as raw:
            await raw.send("POST", CHAT, json.dumps(asked(CHAT, 2)).encode(), JSON)
            await until(lambda: kept.KEPT._all)
        await until(lambda: not kept.KEPT._all)
        one.targets[0].go_on()


def test_alternatives_count_in_what_an_unread_stream_may_have() -> None:
    for best in range(21):
        over: list[bool] = []
        outbox = Outbox(100, partial(over.append, True))
        position = PositionLogprobs((1, -1.0), [(token, -2.0) for token in range(best)])
        fit = 100 // (1 + best // ALTERNATIVES)
        for count in range(fit + 1):
            assert not over
            outbox.put(Update(count, (1,), (position,)))
        assert over == [True]


def test_a_position_is_what_was_told() -> None:
    for best in range(21):
        top = tuple((1 << 20 | token, -token / 3) for token in range(best))
        one = PositionLogprobs((7, -0.1), top)
        assert (one.chosen, one.top, one.alternatives) == ((7, -0.1), top, best)
        assert one == PositionLogprobs((7, -0.1), top) != PositionLogprobs((8, -0.1), top)
