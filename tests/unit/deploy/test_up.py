"""What `make up` and `paceline serve` tell to try."""

import json
import shlex
import socket

import pytest

from deploy.stack import StackError
from deploy.up import check_ports, to_try
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


@pytest.mark.parametrize("flag", ["--grpc", "--http"])
def test_a_port_in_use_is_refused_before_anything_starts(flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = f"127.0.0.1:{taken.getsockname()[1]}"
        grpc, http = (busy, "") if flag == "--grpc" else ("127.0.0.1:0", busy)
        with pytest.raises(StackError, match=rf"^{flag}: {busy} is in use; end what listens there, or {flag} 127"):
            check_ports(grpc, http)
    check_ports("127.0.0.1:0", "127.0.0.1:0")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1", "'127.0.0.1' is not host:port"),
        ("127.0.0.1:99999", "is not host:port"),
        (":8000", "is not host:port"),
        ("203.0.113.7:8000", "no interface of this machine has that address"),
    ],
)
def test_an_address_that_cannot_be_listened_on_is_refused(address: str, said: str) -> None:
    with pytest.raises(StackError, match=said):
        check_ports("127.0.0.1:0", address)


def test_two_listeners_cannot_share_a_port() -> None:
    with pytest.raises(StackError, match="is taken by another flag"):
        check_ports("127.0.0.1:50999", "127.0.0.1:50999")
