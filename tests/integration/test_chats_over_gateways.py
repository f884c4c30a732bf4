"""Turns of a chat meet their target through any gateway, though all chats begin with one system prompt."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from tests.integration.gateway_stack import harness
from tests.integration.http_stack import CHAT, chat
from tests.integration.test_gateway_stream import until
from tests.support.fakes_target import FakeTarget
from tests.support.http_client import Client

SYSTEM = {"role": "system", "content": "Answer in one sentence, and be kind to whoever asks. " * 12}
CHATS = 40


async def turn(client: Client, fakes: list[FakeTarget], messages: list[dict[str, Any]]) -> str:
    """The target that a turn came to."""
    before = [len(fake.starts) for fake in fakes]
    reply = await client.post(CHAT, chat(messages=messages, max_tokens=2))
    assert reply.status == 200, reply.body
    (chosen,) = [fake for fake, had in zip(fakes, before, strict=True) if len(fake.starts) > had]
    return chosen.pair_id


async def test_every_second_turn_goes_where_the_first_went_through_another_gateway(tmp_path: Path) -> None:
    """First questions are shorter than a block: the tokens before them are the same for all chats."""
    fakes = [FakeTarget(f"p{index}", revision=("old", "new")[index % 2]) for index in range(4)]
    known: dict[str, Any] = {"revisions": ("old=1", "new=1"), "http": "127.0.0.1:0"}
    async with harness(tmp_path / "a", fakes, **known) as one:
        where = tuple(f"127.0.0.1:{fake.port}" for fake in fakes)
        async with harness(tmp_path / "b", [], targets=where, **known) as other:
            for gateway in (one, other):
                await until(lambda at=gateway: sum(link.counts for link in at.app._pool.links) == len(fakes))
            first, second = Client(one.bound.http), Client(other.bound.http)
            went: Counter[str] = Counter()
            for number in range(CHATS):
                begins = [SYSTEM, {"role": "user", "content": f"What is {number}?"}]
                target = await turn(first, fakes, begins)
                more = [{"role": "assistant", "content": "A number. " * 20}, {"role": "user", "content": "Which?"}]
                assert await turn(second, fakes, [*begins, *more]) == target, number
                went[target] += 1
    assert len(went) == 4, went
    assert max(went.values()) < CHATS / 2, went
