"""Streams as clients read them, over gRPC and HTTP; what became of each, by whose fault, and whether it is the text."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import grpc
import h11

from tests.faults.answers import Answer, request
from tests.support.http_client import connected

STREAM_S, RETRY_S = 240.0, 0.5
KINDS = ("generate", "chat", "completion")
_TAKEN = ("ALREADY_EXISTS", "409")


class StreamError(Exception):
    """A stream that gave no whole text; `code` is a gRPC status or an HTTP one, or says how the connection ended."""

    def __init__(self, code: str, words: str, begun: bool) -> None:
        super().__init__(f"{code}: {words}")
        self.code, self.begun = code, begun


@dataclass(frozen=True)
class Ask:
    """One request: the same number gives the same text."""

    number: int
    tokens: int

    @property
    def kind(self) -> str:
        """How it is asked."""
        return KINDS[self.number % len(KINDS)]


class Door(Protocol):
    """A gateway as clients see it; `lives` counts its starts."""

    lives: int

    def excuses(self, lives: int, begun: bool) -> bool:
        """Whether a stream that failed has its own gateway to blame: it was killed, or was not up when it was asked."""
        ...

    async def read(self, ask: Ask, key: str, begun: Callable[[], None], off: bool = False) -> str:
        """The whole text; `begun` is called when some of it is there.

        Raises:
            StreamError: there is none.
        """
        ...


@dataclass
class Found:
    """What became of streams."""

    streams: int = 0
    lost: list[str] = field(default_factory=list)
    differ: list[str] = field(default_factory=list)
    by_gateway: int = 0
    """Streams that ended with their own gateway and were read again by their key."""
    duplicates: int = 0
    """Answers, while they were read again, that the first one was still known."""
    kinds: Counter[str] = field(default_factory=Counter)


class Clients:
    """Reads streams and judges them by the texts that the same requests gave without speculation and without faults."""

    def __init__(self, doors: Sequence[Door], asks: Sequence[Ask], run: str, stream_s: float = STREAM_S) -> None:
        self.doors, self.asks = doors, asks
        self.found = Found()
        self.during = ""
        self._run, self._stream_s = run, stream_s
        self._expected: dict[int, str] = {}

    async def learn(self) -> None:
        """Reads what is right, with speculation off; every door has served as many at once as it ever will."""
        for door in self.doors:
            texts = await asyncio.gather(*(door.read(ask, "", _nothing, off=True) for ask in self.asks))
            self._expected = {ask.number: text for ask, text in zip(self.asks, texts, strict=True)}

    def begin(self, ask: Ask, wave: int) -> Reading:
        """Begins a stream."""
        reading = Reading()
        reading.task = asyncio.create_task(self._read(ask, wave, reading))
        return reading

    async def _read(self, ask: Ask, wave: int, reading: Reading) -> None:
        name = f"wave {wave}, {self.during}, {ask.kind} {ask.number}"
        self.found.streams += 1
        self.found.kinds[ask.kind] += 1
        try:
            async with asyncio.timeout(self._stream_s):
                text = await self._text(ask, f"{self._run}-{wave}-{ask.number}", ask.number + wave, reading)
        except (StreamError, TimeoutError) as error:
            self.found.lost.append(f"{name}: {error or type(error).__name__}")
            return
        finally:
            reading.begun.set()
        if text != self._expected[ask.number]:
            self.found.differ.append(f"{name}: {text!r} is not {self._expected[ask.number]!r}")

    async def _text(self, ask: Ask, key: str, first: int, reading: Reading) -> str:
        """The text by the first door or, when that was lost, by the next one, with the same key."""
        turned = False
        while True:
            door = self.doors[first % len(self.doors)]
            lives = door.lives
            try:
                return await door.read(ask, key, reading.begun.set)
            except StreamError as error:
                if turned and error.code in _TAKEN:
                    self.found.duplicates += 1
                elif not door.excuses(lives, error.begun):
                    raise
                else:
                    self.found.by_gateway += not turned
                    turned, first = True, first + 1
            await asyncio.sleep(RETRY_S)


class Reading:
    """A stream that is read; `begun` is set when some of it is there or it has ended."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


async def read_generate(stub: Any, ask: Ask, key: str, begun: Callable[[], None], off: bool) -> str:
    """A stream over gRPC; its positions follow on one another."""
    asked = request(ask.number, ask.tokens, off=off)
    asked.idempotency_key = key
    answer = Answer()
    try:
        async for response in stub.Generate(asked, timeout=STREAM_S, wait_for_ready=True):
            answer.take(response)
            begun()
    except grpc.aio.AioRpcError as error:
        raise StreamError(error.code().name, error.details() or "", bool(answer.tokens)) from None
    if answer.final is None:
        raise StreamError("end", "no final message", bool(answer.tokens))
    return answer.text


async def read_http(address: str, ask: Ask, key: str, begun: Callable[[], None], off: bool) -> str:
    """A stream of OpenAI's API."""
    texts: list[str] = []
    headers = {"content-type": "application/json", **({"idempotency-key": key} if key else {})}
    path, body = _body(ask, off)
    try:
        async with connected(address, within_s=STREAM_S) as http:
            await http.send("POST", path, json.dumps(body).encode(), headers)
            head = await http.head()
            if head.status_code != 200:
                told = b"".join([piece async for piece in http.pieces()])
                raise StreamError(str(head.status_code), told.decode(errors="replace"), False)
            await _read_events(http.events(), texts, begun)
    except (OSError, TimeoutError, h11.RemoteProtocolError) as error:
        raise StreamError(type(error).__name__, str(error), bool(texts)) from None
    return "".join(texts)


async def _read_events(events: AsyncIterator[Any], texts: list[str], begun: Callable[[], None]) -> None:
    """Adds the pieces of the text; only [DONE] ends it well."""
    async for event in events:
        if event == "[DONE]":
            return
        if "error" in event:
            raise StreamError(str(event["error"].get("code")), str(event["error"]), bool(texts))
        texts += [choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in event["choices"]]
        begun()
    raise StreamError("end", "no [DONE]", bool(texts))


def _body(ask: Ask, off: bool) -> tuple[str, dict[str, Any]]:
    """Path and body of a request over HTTP: a chat in words, or a completion of token ids."""
    of = request(ask.number, ask.tokens)
    body: dict[str, Any] = {
        "model": "embedded",
        "max_tokens": ask.tokens,
        "ignore_eos": True,
        "temperature": of.sampling.temperature,
        "top_p": of.sampling.top_p,
        "seed": of.sampling.seed,
        "stream": True,
        "paceline": {"speculation": not off},
    }
    if ask.kind == "chat":
        return "/v1/chat/completions", body | {"messages": [{"role": "user", "content": f"def f{ask.number}(x):"}]}
    return "/v1/completions", body | {"prompt": list(of.prompt.tokens.ids)}


def _nothing() -> None:
    """What nobody waits for."""
