"""Reads OpenAI's events from a server that says what a test wants."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from paceline.load.openai_endpoint import OpenaiEndpoint
from paceline.load.sample import FailedError, Job

TEXT = {"choices": [{"text": "a"}]}
USAGE = {"choices": [], "usage": {"completion_tokens": 9}}


class Server(ThreadingHTTPServer):
    """Keeps what was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        self.events: list[Any] = [TEXT, TEXT, USAGE]
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.keys: set[str] = set()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self._send(json.dumps({"data": [{"id": "first"}, {"id": "second"}]}).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, body))
        self.server.keys.add(self.headers.get("Authorization", ""))
        lines = [f": note\ndata: {one if isinstance(one, str) else json.dumps(one)}\n\n" for one in self.server.events]
        self._send("".join(lines).encode())

    def _send(self, data: bytes) -> None:
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def test_a_completion_names_the_model_that_is_listed_first(server: Server) -> None:
    server.events.append("[DONE]")
    sample = OpenaiEndpoint(server.url, key="k").ask(Job("once", 5))
    path, body = server.asked[0]
    assert path == "/v1/completions"
    assert body == {
        "model": "first",
        "prompt": "once",
        "max_tokens": 5,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert server.keys == {"Bearer k"}
    assert sample.tokens == 9
    assert 0 < sample.first_s <= sample.last_s


@pytest.mark.parametrize("name", ["content", "reasoning_content"])
def test_a_chat_is_counted_by_its_events_without_usage(server: Server, name: str) -> None:
    start = {"choices": [{"delta": {"role": "assistant", "content": ""}}]}
    server.events = [start, {"choices": [{"delta": {name: "x"}}]}, {"choices": [{"delta": {name: "y"}}], "usage": None}]
    sample = OpenaiEndpoint(server.url, "mine").ask(Job("hi", 5, chat=True, ignore_eos=True))
    path, body = server.asked[0]
    assert path == "/v1/chat/completions"
    assert (body["model"], body["ignore_eos"]) == ("mine", True)
    assert body["messages"] == [{"role": "user", "content": "hi"}]
    assert sample.tokens == 2


@pytest.mark.parametrize(
    ("status", "events", "told"),
    [
        (429, [], "HTTP 429"),
        (200, [{"error": {"message": "gone"}}], "gone"),
        (200, ["{broken"], "Expecting property name"),
        (200, [USAGE], "no token came"),
    ],
)
def test_what_is_no_answer_is_told(server: Server, status: int, events: list[Any], told: str) -> None:
    endpoint = OpenaiEndpoint(server.url)
    server.status, server.events = status, events
    with pytest.raises(FailedError, match=told):
        endpoint.ask(Job("x", 5))


def test_without_a_server_there_is_no_model() -> None:
    with pytest.raises(FailedError, match="no model is listed at"):
        OpenaiEndpoint("http://127.0.0.1:9/v1")
