"""What `make up` and `paceline serve` tell to try."""

import json
import shlex
import socket

import pytest

from deploy.up import free_http, to_try
from paceline import bundle


def test_the_usual_address_is_not_named_and_http_is_a_line_to_paste() -> None:
    chat, generate, curl = to_try("127.0.0.1:50051", "127.0.0.1:8000", "it's")
    assert (chat, generate) == ("make chat", 'make generate PROMPT="def main():"')
    program, url, _, header, _, body = shlex.split(curl)
    assert (program, url) == ("curl", "http://127.0.0.1:8000/v1/completions")
    assert header == "Content-Type: application/json", "--json is not known to every curl"
    assert json.loads(body) == {"model": "it's", "prompt": "def main():", "max_tokens": 32}


@pytest.mark.parametrize(
    ("start", "chat", "generate", "status"),
    [
        (
            "make up",
            "make chat ADDRESS=h:1",
            'make generate PROMPT="def main():" ADDRESS=h:1',
            "make status ADDRESS=h:1",
        ),
        (
            "paceline serve",
            "paceline chat --address h:1",
            'paceline generate "def main():" --address h:1',
            "paceline status --address h:1",
        ),
    ],
)
def test_another_address_is_named_as_the_command_wants_it(
    monkeypatch: pytest.MonkeyPatch, start: str, chat: str, generate: str, status: str
) -> None:
    monkeypatch.setattr(bundle, "start", lambda: start)
    assert to_try("h:1", "", "m") == (chat, generate, status)


def test_http_goes_elsewhere_when_somebody_has_its_port(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        usual = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setattr("deploy.up.HTTP", usual)
        assert free_http() == "127.0.0.1:0"
    assert free_http() == usual
