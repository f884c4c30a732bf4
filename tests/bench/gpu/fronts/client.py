"""A client of streamed completions that notes when tokens come; the same for every server."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from tests.bench.gpu.fronts.loads import Asked

PATH = "/v1/completions"
WAIT_S = 300.0


class ServerError(RuntimeError):
    """A server did not answer a request as it should."""


@dataclass
class Answer:
    """One answer: when it was asked for, when tokens came, and how many, all since the load began."""

    asked_s: float
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """Tokens that came."""
        return sum(count for _, count in self.arrivals)

    @property
    def first_s(self) -> float:
        """Seconds to the first token."""
        return self.arrivals[0][0] - self.asked_s

    @property
    def gaps_s(self) -> list[float]:
        """Seconds between one arrival and the next."""
        times = [at for at, _ in self.arrivals]
        return [after - before for before, after in pairwise(times)]

    @property
    def a_token_s(self) -> float:
        """Mean seconds a token after the first arrival."""
        later = self.tokens - self.arrivals[0][1]
        return (self.arrivals[-1][0] - self.arrivals[0][0]) / max(1, later)


async def answers(address: str, model: str, requests: Sequence[Asked]) -> list[Answer]:
    """Send each request at its time and return the answers in order.

    Raises:
        ServerError: a status other than 200, or fewer tokens than were asked for.
        TimeoutError: one took longer than WAIT_S.
    """
    began = time.perf_counter()
    return list(await asyncio.gather(*(_answer(address, model, one, began) for one in requests)))


async def chat_answers(address: str, model: str, chats: Sequence[Sequence[Asked]]) -> list[Answer]:
    """Hold the chats side by side and return all answers; a turn's prompt is all that was said, and its own words.

    Raises:
        ServerError: as `answers`.
        TimeoutError: as `answers`.
    """
    began = time.perf_counter()

    async def hold(turns: Sequence[Asked]) -> list[Answer]:
        said: list[int] = []
        found = []
        for turn in turns:
            said += turn.prompt
            found.append(await _answer(address, model, replace(turn, prompt=list(said)), began))
            said += found[-1].token_ids
        return found

    return [answer for turns in await asyncio.gather(*map(hold, chats)) for answer in turns]


async def _answer(address: str, model: str, asked: Asked, began: float) -> Answer:
    async with asyncio.timeout(WAIT_S + asked.at_s):
        await asyncio.sleep(asked.at_s)
        answer = Answer(time.perf_counter() - began)
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(_request(model, asked))
            await _check_status(reader)
            async for event in _events(reader):
                for choice in event.get("choices", []):
                    if ids := choice.get("token_ids"):
                        answer.arrivals.append((time.perf_counter() - began, len(ids)))
                        answer.token_ids += ids
        finally:
            writer.close()
    if answer.tokens != asked.out:
        raise ServerError(f"{address}: {answer.tokens} tokens came where {asked.out} were asked for")
    return answer


def _request(model: str, asked: Asked) -> bytes:
    body = json.dumps(
        {
            "model": model,
            "prompt": asked.prompt,
            "max_tokens": asked.out,
            "temperature": 0,
            "seed": asked.seed,
            "ignore_eos": True,
            "stream": True,
            "return_token_ids": True,
        }
    ).encode()
    lines = [f"POST {PATH} HTTP/1.1", "host: localhost", "content-type: application/json"]
    lines += [f"content-length: {len(body)}", "connection: close"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def _check_status(reader: asyncio.StreamReader) -> None:
    status = (await reader.readline()).decode().strip()
    while (await reader.readline()).strip():
        pass
    if " 200 " not in f"{status} ":
        raise ServerError(f"{status}: {(await reader.read(2000)).decode(errors='replace')}")


async def _events(reader: asyncio.StreamReader) -> AsyncIterator[Any]:
    """The events of a chunked answer; an event may end in another chunk than it began in."""
    rest = b""
    while size := int((await reader.readline()).split(b";")[0] or b"0", 16):
        rest += (await reader.readexactly(size + 2))[:-2]
        *whole, rest = rest.split(b"\n\n")
        for event in whole:
            data = event.removeprefix(b"data: ")
            if data.startswith(b"{"):
                yield json.loads(data)
