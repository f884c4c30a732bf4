"""What `make up` and `paceline serve` tell to try."""

import dataclasses
import json
import shlex
import socket

import pytest

from deploy.cluster.settings import ClusterSettings
from deploy.stack import StackError
from deploy.up import (
    ALIASES,
    GATEWAYS,
    arguments,
    check_ports,
    gateways_own,
    in_our_words,
    open_to_all,
    to_try,
)
from paceline import bundle
from services.gateway.settings import GatewaySettings


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


def test_flags_of_other_servers_have_our_names_here() -> None:
    given = ["--max-model-len", "8192", "--served-model-name=x", "--gpu-memory-utilization", "0.5", "--model", "m"]
    assert in_our_words(given) == ["--context-limit", "8192", "--name=x", "--memory-fraction", "0.5", "--model", "m"]


def test_the_gateways_flags_go_to_the_gateway() -> None:
    given = ["--tenants", "t.toml", "--dtype", "float32", "--http-page=false", "--tls-key-file", "k", "--seed"]
    mine, others = gateways_own(given)
    assert mine == ["--tenants", "t.toml", "--http-page=false", "--tls-key-file", "k"]
    assert others == ["--dtype", "float32", "--seed"]
    assert {field.name for field in dataclasses.fields(GatewaySettings)} >= GATEWAYS


def test_every_name_of_others_is_one_of_a_flag_here() -> None:
    ours = {field.name for cls in (ClusterSettings, GatewaySettings) for field in dataclasses.fields(cls)} | {"name"}
    assert {name.removeprefix("--").replace("-", "_") for name in ALIASES.values()} <= ours


@pytest.mark.parametrize(
    ("words", "http"),
    [
        (["--port", "9"], "127.0.0.1:9"),
        (["--host", "0.0.0.0"], "0.0.0.0:8000"),
        (["--port", "9", "--http", "h:1"], "h:9"),
        ([], "127.0.0.1:8000"),
    ],
)
def test_host_and_port_are_those_of_openais_api(words: list[str], http: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["up", "--model", "m", *words])
    assert arguments().http == http


def test_a_listener_that_others_reach_without_a_key_is_told() -> None:
    assert "0.0.0.0:8000" in open_to_all(("127.0.0.1:1", "0.0.0.0:8000"), [])
    assert open_to_all(("127.0.0.1:1", "0.0.0.0:8000"), ["--tenants", "t"]) == ""
    assert open_to_all(("127.0.0.1:1", ""), []) == ""
