"""What `make up` and `paceline serve` tell to try."""

import dataclasses
import errno
import json
import os
import shlex
import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest

from deploy.cluster.groups import DRAFTER, TARGET
from deploy.cluster.settings import ClusterSettings
from deploy.flags import (
    DECIDED,
    GATEWAYS,
    arguments,
    gateways_own,
    in_our_words,
    keys,
    parser,
    refuse_unknown,
    with_dtype,
)
from deploy.hints import Served, to_try
from deploy.others_flags import ALIASES
from deploy.stack import EMBEDDED, Stack, StackError, StackSettings, judged
from deploy.up import check_ports, open_to_all
from paceline import bundle
from services.common.serving import hub
from services.common.serving.hub import FolderError, described_folder
from services.common.serving.settings import own
from services.gateway.settings import GatewaySettings
from services.gateway.tenancy.tenants import TenantsFile


def test_a_chat_model_is_asked_and_another_one_continued() -> None:
    chat, generate, curl = to_try(Served("127.0.0.1:50051", "127.0.0.1:8000", "it's"))
    assert (chat, generate) == ("make chat", "make generate PROMPT='The capital of France is'")
    program, url, _, header, _, body = shlex.split(curl)
    assert (program, url) == ("curl", "http://127.0.0.1:8000/v1/chat/completions")
    assert header == "Content-Type: application/json", "--json is not known to every curl"
    asked = json.loads(body)
    assert (asked["model"], asked["messages"][0]["role"], asked["max_tokens"]) == ("it's", "user", 32)
    generate, curl = to_try(Served("127.0.0.1:50051", "127.0.0.1:8000", "base", chats=False))
    assert generate.startswith("make generate") and "/v1/completions" in curl and '"prompt"' in curl
    _, generate, curl = to_try(Served("127.0.0.1:50051", "127.0.0.1:8000", "paceline-embedded"))
    assert "def main():" in generate and "/v1/completions" in curl


@pytest.mark.parametrize(
    ("start", "lines"),
    [
        (
            "make up",
            [
                "make chat ADDRESS=h:1",
                "make generate PROMPT='The capital of France is' ADDRESS=h:1",
                "make status ADDRESS=h:1",
            ],
        ),
        (
            "paceline serve",
            [
                "paceline chat --address h:1",
                "paceline generate 'The capital of France is' --address h:1",
                "paceline status --address h:1",
            ],
        ),
    ],
)
def test_another_address_is_named_as_the_command_wants_it(
    monkeypatch: pytest.MonkeyPatch, start: str, lines: list[str]
) -> None:
    monkeypatch.setattr(bundle, "start", lambda: start)
    assert to_try(Served("h:1", "", "m")) == lines


def test_certificates_and_keys_are_in_what_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served("h:1", "h:2", "m", tls_cert="my cert.pem", keyed=True, key_file="key file")
    assert shlex.split(to_try(served)[1])[2:] == ["ADDRESS=h:1", "ARGS=--ca my cert.pem"]
    monkeypatch.setattr(bundle, "start", lambda: "paceline serve")
    key, chat, _, curl = to_try(served)
    assert key == "export PACELINE_API_KEY=$(head -1 'key file')"
    assert chat == "paceline chat --address h:1 --ca 'my cert.pem'"
    words = shlex.split(curl)
    assert words[1].startswith("https://h:2/") and words[words.index("--cacert") + 1] == "my cert.pem"
    assert "Authorization: Bearer $PACELINE_API_KEY" in words
    assert "--cert-key" in to_try(Served("h:1", "", "m", tls_cert="c", tls_ca="a"))[0]


@pytest.mark.parametrize("flag", ["--grpc", "--http"])
def test_a_port_in_use_is_refused_before_anything_starts(flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = f"127.0.0.1:{taken.getsockname()[1]}"
        grpc, http = (busy, "") if flag == "--grpc" else ("127.0.0.1:0", busy)
        with pytest.raises(StackError, match=rf"^{flag}: {busy} is in use; end what listens there, or {flag} 127"):
            check_ports(grpc, http)
    check_ports("127.0.0.1:0", "127.0.0.1:0")
    check_ports("unix:/tmp/no/such/folder/yet/x.sock", "")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1", "'127.0.0.1' is not host:port"),
        ("127.0.0.1:99999", "is not host:port"),
        (":8000", "is not host:port"),
        ("203.0.113.7:8000", "no interface of this machine has that address"),
        ("unix:", "a socket's path has 1 to 107 bytes, not 0"),
        ("unix:/tmp/" + "x" * 103, "a socket's path has 1 to 107 bytes, not 108"),
        ("unix:///dev/null/x.sock", "/dev/null is no folder"),
        (f"unix:{__file__}/deep/x.sock", "is no folder"),
        (f"unix:{__file__}", "is there and is no socket"),
    ],
)
def test_an_address_that_cannot_be_listened_on_is_refused(address: str, said: str) -> None:
    with pytest.raises(StackError, match=said):
        check_ports("127.0.0.1:0", address)


LISTENERS = sorted(name for name in own(ClusterSettings) if getattr(ClusterSettings, name, "") == "127.0.0.1:0")


@pytest.mark.parametrize("name", [*LISTENERS, "base_port"])
def test_a_port_of_the_controller_or_a_pair_in_use_is_refused_before_anything_starts(name: str) -> None:
    """Of every setting that is an address here, and of the pairs' first port."""
    assert {"health", "metrics"} <= set(LISTENERS)
    flag = f"--{name.replace('_', '-')}"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        first = port - (name == "base_port")  # which another process may hold
        set_: dict[str, Any] = {name: first if name == "base_port" else f"127.0.0.1:{port}"}
        with pytest.raises(StackError, match=rf"^{flag}: 127.0.0.1:({first}|{port}) is in use; ") as told:
            check_ports("127.0.0.1:0", "", ClusterSettings(model="m", drafter="d", **set_))
    assert "\n" not in str(told.value)


UNWRITABLE = [errno.EACCES, errno.EROFS, errno.ENOSPC, errno.ENOENT, errno.EDQUOT]


@pytest.mark.parametrize("number", UNWRITABLE, ids=[errno.errorcode[number] for number in UNWRITABLE])
def test_a_folder_that_cannot_be_written_is_one_line_with_its_remedy(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), "/a/folder")

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with pytest.raises(StackError, match=rf"^no .*: {os.strerror(number)}; TMPDIR=FOLDER names another$"):
        Stack(StackSettings())
    monkeypatch.setattr(hub, "describing_folder", refuse)
    monkeypatch.setattr(hub, "gguf_of", lambda _: object())
    said = f"{tmp_path}: /a/folder cannot be written: {os.strerror(number)}; XDG_CACHE_HOME=FOLDER names another cache"
    with pytest.raises(FolderError) as told:
        described_folder(tmp_path)
    assert str(told.value) == said


def test_two_listeners_cannot_share_a_port() -> None:
    with pytest.raises(StackError, match="is taken by another flag"):
        check_ports("127.0.0.1:50999", "127.0.0.1:50999")


def test_flags_of_other_servers_have_our_names_here() -> None:
    given = ["--max-model-len", "8192", "--served-model-name=x", "--gpu-memory-utilization", "0.5", "--model", "m"]
    assert in_our_words(given) == ["--context-limit", "8192", "--name=x", "--memory-fraction", "0.5", "--model", "m"]


@pytest.mark.parametrize(
    ("text", "length"),
    [("32k", "32000"), ("32K", "32768"), ("1.5k", "1500"), ("1M", "1048576"), ("auto", "0"), ("9", "9"), ("x", "x")],
)
def test_a_length_may_be_written_as_other_servers_write_it(text: str, length: str) -> None:
    for flag in ("--max-model-len", "--context-limit"):
        assert in_our_words([flag, text, "--name", text]) == ["--context-limit", length, "--name", text]
        assert in_our_words([f"{flag}={text}"]) == [f"--context-limit={length}"]


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


@pytest.mark.parametrize("flags", [(), ("--model=", "--drafter=")], ids=["bare", "as make hands on"])
def test_a_file_and_the_environment_set_what_flags_do(
    flags: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "paceline.toml"
    file.write_text('model = "embedded"\nslots = 3\npairs = 2\nmodel_name = "n"\n')
    for name, value in {"SLOTS": "5", "GRPC": "127.0.0.1:7", "HTTP": "127.0.0.1:8"}.items():
        monkeypatch.setenv(f"PACELINE_{name}", value)
    monkeypatch.setattr("sys.argv", ["up", *flags, "--config", str(file)])
    parsed = arguments()
    assert (parsed.model, parsed.name, parsed.pairs) == (str(EMBEDDED / "target"), "n", 2)
    assert (parsed.address, parsed.http) == ("127.0.0.1:7", "127.0.0.1:8")
    assert parsed.cluster_flags[:2] == ["--slots", "5"], "the environment wins over the file"
    monkeypatch.setattr("sys.argv", ["up", "--slots", "9", "--config", str(file)])
    assert arguments().cluster_flags[:2] == ["--slots", "9"], "flags win"


def test_a_listener_that_others_reach_without_a_key_is_told() -> None:
    assert "0.0.0.0:8000" in open_to_all(("127.0.0.1:1", "0.0.0.0:8000"), keyed=False)
    assert open_to_all(("127.0.0.1:1", "0.0.0.0:8000"), keyed=True) == ""
    assert open_to_all(("127.0.0.1:1", ""), keyed=False) == ""


def test_keys_come_from_flags_a_file_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("one\n\n two \n")
    environ = {"PACELINE_API_KEY": "env"}
    assert keys([], "", {}) == ()
    assert keys(["a", "a"], str(file), environ) == ("a", "one", "two")
    assert keys([], "", environ) == ("env",)
    file.write_text("\n")
    with pytest.raises(ValueError, match="holds no key"):
        keys([], str(file), environ)


@pytest.mark.parametrize("key", ["", "a b", "é", "a\x07"])
def test_a_key_that_no_header_can_hold_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="visible ASCII"):
        keys([key], "", {})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--dtype", "float16"], "--dtype: float16 is not served: take bfloat16"),
        (["--dtype=half"], "--dtype: half is not served"),
        (["--api-key", "k", "--tenants", "t"], "--tenants names all keys"),
        (["--api-key-file", "/nowhere/key"], "/nowhere/key"),
        (["--pairs", "many"], "must be a whole number, not 'many'"),
        (["--tenant", "t.toml"], "--tenant: there is no such flag; did you mean --tenants?"),
        (["--api-keys", "k"], "did you mean --api-key?"),
        (["--max-modellen", "9"], "did you mean --max-model-len?"),
        (["--qqqqq", "4"], "--qqqqq: there is no such flag; see --help"),
        (["--dtype", "float32", "stray"], "stray: flags start with --"),
    ],
)
def test_a_refused_flag_is_one_line(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["up", "--model", "m", *words])
    with pytest.raises(SystemExit) as ended:
        arguments()
    told = capsys.readouterr().err
    assert ended.value.code == 2 and said in told and told.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [["--target.dtype", "x"], ["--target.dtype=--x"], ["--session-secret-file", "f"], ["--context_limit=9"], []],
)
def test_what_the_services_know_is_not_refused_here(words: list[str]) -> None:
    refuse_unknown(words, parser().format_help())


def test_types_of_numbers_have_other_servers_names() -> None:
    assert with_dtype(["--dtype", "auto"]) == ["--dtype", "auto", "--dtype", ""]
    assert with_dtype(["--dtype=float", "--seed", "1"])[-2:] == ["--dtype", "float32"]
    assert with_dtype(["--dtype", "bfloat16"]) == ["--dtype", "bfloat16"]


def test_a_key_of_the_environment_is_taken_and_handed_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_API_KEY", "secret")
    monkeypatch.setattr("sys.argv", ["up", "--model", "m"])
    assert arguments().api_keys == ("secret",) and "PACELINE_API_KEY" not in os.environ


def test_help_tells_every_flag_in_groups() -> None:
    told = parser().format_help()
    names = [*GATEWAYS, *(own(ClusterSettings) - DECIDED)]
    names += [f"{group.prefix}.{name}" for group in (TARGET, DRAFTER) for name in group.free]
    assert all(f"  --{name.replace('_', '-')} " in told for name in names)
    assert all(f"  {theirs}  the same as {ours}" in told for theirs, ours in ALIASES.items())
    assert all(heading in told for heading in ("Model:", "Addresses:", "Access:", "The gateway:", "Every drafter:"))


def test_the_file_of_keys_is_readable_by_its_user_alone_and_goes_with_the_stack() -> None:
    stack = Stack(StackSettings(api_keys=("secret",)))
    path = stack._tenants()
    assert path.stat().st_mode & 0o777 == 0o600
    found = TenantsFile(path)
    assert found.find("secret") is not None and found.find("other") is None
    assert "secret" not in path.read_text() and "secret" not in repr(stack.settings)
    stack.stop()
    assert not path.exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--tls-cert", "/nowhere/c.pem", "--tls-key", "/nowhere/k"], "tls_cert: /nowhere/c.pem: no such file"),
        (["--tenants", "/nowhere/t.toml"], "tenants: /nowhere/t.toml: no such file"),
        (["--tls-cert", "KEY", "--tls-key-file", "KEY"], "tls_key: is the text of a file"),
        (["--tenants", "KEY"], "KEY"),
    ],
)
def test_a_file_that_a_gateway_cannot_use_is_refused_before_anything_starts(
    flags: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("-----BEGIN PRIVATE KEY-----\nMC4CAQA\n")
    given = [str(file) if word == "KEY" else word for word in flags]
    with pytest.raises(SystemExit) as ended:
        judged(StackSettings(gateway_flags=given))
    told = capsys.readouterr().err
    assert ended.value.code == 2 and said.replace("KEY", str(file)) in told and told.count("\n") == 1
    assert "MC4CAQA" not in told
