"""Clients over HTTP that want to end a gateway: what they send, and a process that sends it without a pause."""

from __future__ import annotations

import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from pydantic import BaseModel

from services.common.serving.channel import MAX_CLIENT_MESSAGE_BYTES
from services.gateway.http.endpoints.message_bodies import CountBody, MessagesBody
from services.gateway.http.endpoints.response_bodies import ResponsesBody
from services.gateway.http.endpoints.tokens import DetokenizeBody, TokenizeBody
from services.gateway.http.schema.bodies import ChatBody, CompletionBody
from tests.support.giant_bodies import GiantBodies

ENDPOINTS: dict[str, type[BaseModel]] = {
    "/v1/chat/completions": ChatBody,
    "/v1/completions": CompletionBody,
    "/v1/responses": ResponsesBody,
    "/v1/messages": MessagesBody,
    "/v1/messages/count_tokens": CountBody,
    "/tokenize": TokenizeBody,
    "/detokenize": DetokenizeBody,
}
ANSWER_S = 0.5
CHUNK_BYTES = 4096
"""Small, and yet so large that no limit of chunks is met."""


@dataclass(frozen=True, slots=True)
class Attack:
    """What one connection sends: a beginning, and a piece as often as it takes 4 MiB, or once."""

    name: str
    first: bytes
    piece: bytes = b""
    times: int = 1


def head(path: str, key: str, *lines: str) -> bytes:
    """The head of a POST of JSON."""
    known = [f"authorization: Bearer {key}"] if key else []
    first = [f"POST {path} HTTP/1.1", "host: localhost", "content-type: application/json"]
    return "\r\n".join([*first, *known, *lines, "", ""]).encode()


def bodies(key: str, step: int) -> Iterator[Attack]:
    """Every `step`-th body that the schemas make possible: as it is, in chunks and compressed, in turn."""
    for path, kind in ENDPOINTS.items():
        for number, (name, body) in enumerate(GiantBodies(kind, MAX_CLIENT_MESSAGE_BYTES, step)):
            yield sent_as(number, f"{path} {name}", partial(head, path, key), body)


def sent_as(number: int, name: str, begin: Callable[..., bytes], body: bytes) -> Attack:
    """A body in one of three forms."""
    if number % 3 == 1:
        chunks = (body[at : at + CHUNK_BYTES] for at in range(0, len(body), CHUNK_BYTES))
        framed = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in chunks)
        return Attack(f"{name} in chunks", begin("transfer-encoding: chunked"), framed + b"0\r\n\r\n")
    if number % 3 == 2:
        packed = gzip.compress(body, 1)
        return Attack(f"{name} in gzip", begin(f"content-length: {len(packed)}", "content-encoding: gzip"), packed)
    return Attack(name, begin(f"content-length: {len(body)}"), body)


def wires(key: str) -> Iterator[Attack]:
    """Bytes that are expensive before any body is JSON."""
    path = "/v1/completions"
    chunked = head(path, key, "transfer-encoding: chunked")

    def full(name: str, first: bytes, piece: bytes) -> Attack:
        times = MAX_CLIENT_MESSAGE_BYTES // len(piece)
        many = min(times, 2**16 // len(piece) + 1)
        return Attack(name, first, piece * many, times // many + 1)

    yield full("tiny chunks", chunked, b"1\r\n \r\n")
    yield full("chunks with extensions", chunked, b"1;" + b"x" * 200 + b"\r\n \r\n")
    yield full("trailers", chunked + b"0\r\n", b"a:\r\n")
    yield full("headers", b"POST / HTTP/1.1\r\nhost: localhost\r\n", b"a:\r\n")
    yield full("heads", b"", b"GET /x HTTP/1.1\r\nhost: localhost\r\n" + b"a:\r\n" * 100 + b"\r\n")
    yield full("requests", b"", b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    yield full("lines", b"", b"\r\n")
    yield full("a long line", b"GET /", b"x" * 1000)
    yield full("a refused body", head("/x", key, "content-length: 99999999"), b"x" * 1000)
    yield Attack("nothing", b"")


def flood(address: str, what: str, key: str, step: int, connections: int, seconds: float) -> None:
    """Sends all of `wires` or `bodies` over so many connections at once, and again until the time is over."""
    end = time.monotonic() + seconds
    lock = threading.Lock()

    def attacks() -> Iterator[Attack]:
        while True:
            yield from wires(key) if what == "wires" else bodies(key, step)
            if time.monotonic() >= end:
                return

    left = attacks()

    def work() -> None:
        while True:
            with lock:
                attack = next(left, None)
            if attack is None:
                return
            send(address, attack)

    threads = [threading.Thread(target=work) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def send(address: str, attack: Attack) -> None:
    """One connection, until it is closed or an answer has begun."""
    host, _, port = address.rpartition(":")
    with suppress(OSError), socket.create_connection((host, int(port)), timeout=10.0) as one:
        one.sendall(attack.first)
        for _ in range(attack.times):
            one.sendall(attack.piece)
        one.settimeout(ANSWER_S)
        one.recv(65_536)
