"""Any server of OpenAI's API over HTTP, read as server-sent events with the standard library alone."""

import json
import ssl
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from paceline.load.sample import FailedError, Job, Sample

TIMEOUT_S = 600.0
DATA = b"data:"
TEXT = ("content", "reasoning_content", "reasoning")


class OpenaiEndpoint:
    """Asks with one connection for each request."""

    def __init__(self, base_url: str, model: str = "", key: str = "", tls: ssl.SSLContext | None = None) -> None:
        """Takes a base URL as OpenAI's clients do, such as http://127.0.0.1:8000/v1.

        Without a name of a model the first one that the server lists is asked.

        Raises:
            FailedError: the server lists none.
        """
        url = urlsplit(base_url)
        self._host, self._secure, self._tls = url.netloc, url.scheme == "https", tls
        self._path = url.path.rstrip("/") or "/v1"
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._model = model or self._first_model()

    def ask(self, job: Job) -> Sample:
        """Greedy, as of Endpoint; tokens are counted by the server's usage, else by its events."""
        began = time.perf_counter()
        first = last = 0.0
        events, tokens = 0, None
        try:
            with closing(self._connect()) as connection:
                for event in self._events(connection, job):
                    if _text(event):
                        last = time.perf_counter() - began
                        first = first or last
                        events += 1
                    tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
        except (OSError, HTTPException, ValueError) as error:
            raise FailedError(str(error) or type(error).__name__) from None
        if not events:
            raise FailedError("no token came")
        return Sample(first, last, tokens or events)

    def _events(self, connection: HTTPConnection, job: Job) -> Iterator[dict[str, Any]]:
        body = {"model": self._model, "max_tokens": job.max_tokens, "temperature": 0, "stream": True}
        body |= {"stream_options": {"include_usage": True}} | ({"ignore_eos": True} if job.ignore_eos else {})
        body |= {"messages": [{"role": "user", "content": job.prompt}]} if job.chat else {"prompt": job.prompt}
        path = f"{self._path}/chat/completions" if job.chat else f"{self._path}/completions"
        connection.request("POST", path, json.dumps(body), self._headers)
        yield from events(_checked(connection.getresponse()))

    def _first_model(self) -> str:
        try:
            with closing(self._connect()) as connection:
                connection.request("GET", f"{self._path}/models", headers=self._headers)
                listed = json.loads(_checked(connection.getresponse()).read())
                return str(listed["data"][0]["id"])
        except (OSError, HTTPException, ValueError, LookupError, TypeError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise FailedError(f"no model is listed at {self._host}{self._path}/models: {reason}") from None

    def _connect(self) -> HTTPConnection:
        if self._secure:
            return HTTPSConnection(self._host, timeout=TIMEOUT_S, context=self._tls)
        return HTTPConnection(self._host, timeout=TIMEOUT_S)


def events(response: HTTPResponse) -> Iterator[dict[str, Any]]:
    """The JSON objects of a stream of events, to its end.

    Raises:
        ValueError: one is no JSON object, or tells an error.
    """
    for line in response:
        data = line.removeprefix(DATA).strip()
        if not line.startswith(DATA) or data == b"[DONE]":
            continue
        event = json.loads(data)
        if not isinstance(event, dict) or "error" in event:
            raise ValueError(f"the stream tells: {data[:200].decode(errors='replace')}")
        yield event


def _text(event: dict[str, Any]) -> bool:
    """Whether an event brings text."""
    choices = event.get("choices") or [{}]
    delta = choices[0].get("delta") or {}
    return bool(choices[0].get("text") or any(delta.get(name) for name in TEXT))


def _checked(response: HTTPResponse) -> HTTPResponse:
    if response.status != 200:
        raise ValueError(f"HTTP {response.status}: {response.read(300).decode(errors='replace')}")
    return response
