"""The command line: what is asked for, and what is said when it cannot be."""

import argparse
import io
import os
import socket
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

import paceline
from deploy import doctor
from paceline import __version__, bundle
from paceline.commands import COMMANDS, bench, completion, connection, generate, main, serve
from paceline.commands.status import table, widths
from paceline.errors import InvalidValueError
from paceline.served import status
from paceline.v1 import inference_pb2
from services.gateway import make_key
from tests.unit.common.serving.certificates import Authority


class Became(BaseException):
    """Stands for the process that was replaced."""


@pytest.fixture
def became(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Sequence[str]]]:
    seen: list[tuple[str, Sequence[str]]] = []

    def become(module: str, argv: Sequence[str]) -> None:
        seen.append((module, argv))
        raise Became

    monkeypatch.setattr(bundle, "become", become)
    return seen


def test_all_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == main(["--help"]) == 0
    assert all(f"paceline {name} " in capsys.readouterr().out for name in [*COMMANDS][:1])
    assert main(["sevre"]) == 2
    assert "no such command: sevre" in capsys.readouterr().err


def test_help_and_version_may_be_words(capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for argv in (["--help"], ["help"], ["-h"], ["help", "--help"]):
        assert main(argv) == 0
        said.append(capsys.readouterr().out)
    assert len({*said}) == 1 and "paceline serve" in said[0]
    for argv in (["--version"], ["version"], ["-V"]):
        assert main(argv) == 0
        assert capsys.readouterr().out == f"paceline {__version__}\n"
    with pytest.raises(SystemExit) as ended:
        main(["help", "generate"])
    assert ended.value.code == 0
    assert "usage: paceline generate" in capsys.readouterr().out
    assert main(["help", "genrate"]) == 2
    assert "did you mean paceline generate?" in capsys.readouterr().err


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("serve", "doctor", "key")])
def test_every_command_explains_its_flags(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"usage: paceline {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "flags"),
    [
        ([], []),
        (["/models/a b", "--drafter", "d"], ["--model=/models/a b", "--drafter", "d"]),
        (["--context-limit", "8192"], ["--context-limit", "8192"]),
    ],
)
def test_serve_takes_its_first_word_for_the_model(
    became: list[tuple[str, Sequence[str]]], argv: list[str], flags: list[str]
) -> None:
    with pytest.raises(Became):
        main(["serve", *argv])
    assert became == [("deploy.up", flags)]


def test_serve_names_what_is_not_installed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(serve, "find_spec", lambda name: None if name in ("torch", "ray") else object())
    assert main(["serve"]) == 1
    assert capsys.readouterr().err == "not installed: torch, ray; run: pip install 'paceline[serve]'\n"


def test_serve_says_where_it_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    assert main(["serve"]) == 1
    assert "Linux x86-64 only, not Darwin" in capsys.readouterr().err


def test_a_missing_file_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--key-file", "/nowhere/key"]) == 1
    assert "/nowhere/key" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0", "1,x", "", "-3"])
def test_concurrencies_are_positive_numbers(text: str) -> None:
    with pytest.raises(SystemExit):
        bench.arguments(["--concurrency", text])
    assert bench.arguments(["--concurrency", "1,16"]).concurrency == [1, 16]


def test_a_picture_that_cannot_be_drawn_is_refused_before_the_load(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "can_draw", lambda: False)
    assert main(["bench", "127.0.0.1:9", "--png", "x.png"]) == 2
    assert "pip install 'paceline[bench]'" in capsys.readouterr().err


def test_a_picture_without_a_folder_is_refused_before_the_load(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(bench, "can_draw", lambda: True)
    assert main(["bench", "127.0.0.1:9", "--png", f"{tmp_path}/none/x.png"]) == 2
    assert capsys.readouterr().err == f"--png: {tmp_path}/none/x.png: there is no such folder\n"


def test_made_up_prompts_begin_differently() -> None:
    chosen = bench.arguments(["--prompt-words", "5"])
    texts = [job.prompt for name in ("warm-up", "level 1") for job in bench.jobs(chosen, 3, name)]
    assert len({text[:12] for text in texts}) == 6


def test_widths_are_shares_of_rounds() -> None:
    assert widths({1: 1, 4: 3, 8: 0}) == "4:75% 1:25%"
    assert widths({}) == ""


def test_status_tells_models_where_there_are_several() -> None:
    each = [inference_pb2.PairStatus(pair_id=name, model=model) for name, model in (("p", "one"), ("q", "two"))]
    for models, told in ((["one", "two"], True), (["one"], False)):
        found = table(status(inference_pb2.GetStatusResponse(models=models, each=each)))
        assert str(found.title).startswith(f"{', '.join(models)}: ")
        cells = [[*column.cells] for column in found.columns if column.header == "model"]
        assert cells == ([["one", "two", ""]] if told else [])


def test_status_tells_numerics_where_pairs_differ() -> None:
    for other, told in (("1f0e", False), ("", False), ("9c2d", True)):
        each = [inference_pb2.PairStatus(pair_id="a", numerics="1f0e"), inference_pb2.PairStatus(numerics=other)]
        columns = table(status(inference_pb2.GetStatusResponse(each=each))).columns
        assert ("numerics" in [column.header for column in columns]) == told
        assert not told or [*columns[-1].cells] == ["1f0e", "9c2d", ""]


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    told = tomllib.loads((Path(paceline.__file__).parents[1] / "pyproject.toml").read_text())["project"]["version"]
    assert main(["--version"]) == 0
    assert (capsys.readouterr().out, paceline.__version__) == (f"paceline {told}\n", told)


def test_a_key_is_made_by_the_gateways_own_program(became: list[tuple[str, Sequence[str]]]) -> None:
    with pytest.raises(Became):
        main(["key", "acme"])
    assert became == [("services.gateway.make_key", ["acme"])]


FLAGS = {"serve": ["--drafter", "--target.widths"], "chat": ["--system"]}


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        (["paceline", "s"], ["serve", "status"]),
        (["paceline", "serve", "--"], FLAGS["serve"]),
        (["paceline", "serve", "--model=x", "--target.w"], ["--target.widths"]),
        (["paceline", "chat", "--s"], ["--system"]),
        (["paceline", "serve", "x"], []),
        (["paceline", "completion", "b"], ["bash"]),
    ],
)
def test_bash_completes_commands_and_flags(typed: list[str], found: list[str]) -> None:
    words = " ".join(f"'{word}'" for word in typed)
    ask = f'COMP_WORDS=({words}); COMP_CWORD={len(typed) - 1}; _paceline; printf "%s\\n" "${{COMPREPLY[@]}}"'
    told = subprocess.run(
        ["bash", "--norc", "-c", completion.script("bash", FLAGS) + ask], capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == found and told.stderr == ""


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_a_completion_names_every_command_and_flag(shell: str) -> None:
    told = completion.script(shell, FLAGS)
    assert all(name in told for name in COMMANDS)
    assert all(word.removeprefix("--") in told for words in FLAGS.values() for word in words)


def test_a_completion_knows_the_flags_that_help_tells() -> None:
    found = completion.flags()
    assert {"--system", "--key-file", "--no-history"} <= set(found["chat"]) and "--stop" in found["generate"]
    assert "--drafter" in found["serve"] and not any(word.endswith("-") for words in found.values() for word in words)


WRONG = {
    ("sevre",): "paceline: no such command: sevre; did you mean paceline serve?",
    ("zzz",): "paceline: no such command: zzz; there are serve, chat,",
    ("generate", "hi", "two"): "paceline generate: 'two' is one word too many; quote",
    (
        "generate",
        "hi",
        "--max-tokens",
        "x",
    ): "paceline generate: --max-tokens: must be a whole number from 0 on, not 'x'",
    (
        "generate",
        "hi",
        "--max-tokens",
        "-1",
    ): "paceline generate: --max-tokens: must be a whole number from 0 on, not '-1'",
    ("generate", "hi", "--seed", "1.5"): "paceline generate: --seed: must be a whole number from 0 on, not '1.5'",
    ("generate", "hi", "--temperature", "nan"): "paceline generate: --temperature: must be a number, not 'nan'",
    ("generate", "hi", "--stop"): "paceline generate: --stop: needs a value",
    ("generate", "--version"): "paceline generate: --version: there is no such flag; see --help",
    (
        "generate",
        "--Max_Tokens",
        "3",
    ): "paceline generate: --Max_Tokens: there is no such flag; did you mean --max-tokens?",
    ("chat", "--top-p", "inf"): "paceline chat: --top-p: must be a number, not 'inf'",
    ("status", "--every", "1"): "paceline status: --every: there is no such flag; see --help",
    ("status", "--interval", "0"): "paceline status: --interval: must be 0.1 to 3600 seconds, not '0'",
    ("status", "--interval", "inf"): "paceline status: --interval: must be a number, not 'inf'",
    ("bench", "--requests", "0"): "paceline bench: --requests: must be a whole number from 1 on, not '0'",
    ("bench", "--prompt-words=-3"): "paceline bench: --prompt-words: must be a whole number from 0 on, not '-3'",
    ("bench", "--prompts", "/none"): "paceline bench: --prompts: /none: No such file or directory",
    ("--versoin",): "paceline: no such command: --versoin; did you mean paceline --version?",
    ("gen",): "paceline: no such command: gen; did you mean paceline generate?",
    ("run",): "paceline: no such command: run; did you mean paceline serve?",
    ("",): "paceline: no such command: ''; there are serve, chat,",
    (
        "generate",
        "hi",
        "--api-key",
        "k",
    ): "paceline generate: --api-key: there is no such flag; put the key into",
    ("generate", "hi", "--port=8000"): "paceline generate: --port: there is no such flag; --address takes HOST:PORT",
    ("chat", "--systen", "x"): "paceline chat: --systen: there is no such flag; did you mean --system?",
    ("status", "--onec"): "paceline status: --onec: there is no such flag; did you mean --once?",
    ("bench", "--zzz"): "paceline bench: --zzz: there is no such flag; see --help",
    ("completion", "tcsh"): "paceline completion: shell: invalid choice: 'tcsh'",
    ("completion",): "paceline completion: the following arguments are required: shell",
}


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_what_cannot_be_asked_is_one_line(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """It is there before anything is asked of a gateway; no usage of many lines hides it."""
    try:
        code: object = main(words)
    except SystemExit as end:
        code = end.code
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith(WRONG[words])


NO_FILES: dict[tuple[str, str], tuple[bytes | None, str]] = {
    ("--ca", "none"): (None, "--ca: {}: No such file or directory"),
    ("--ca", "bytes"): (bytes(range(256)), "--ca: {}: holds no certificate in PEM"),
    ("--ca", "empty"): (b"", "--ca: {}: holds no certificate in PEM"),
    ("--cert", "bytes"): (bytes(range(256)), "--cert: {}: no certificate in PEM with its key; --cert-key names"),
    ("--cert-key", "alone"): (b"", "--cert-key: needs the certificate of the key beside, by --cert"),
    ("--key-file", "none"): (None, "--key-file: {}: No such file or directory"),
    ("--key-file", "a\0b"): (None, "--key-file: {}: no file can have this name"),
    ("--key-file", "empty"): (b"\n", "--key-file: {}: the file is empty; it holds a key and nothing else"),
    ("--key-file", "two lines"): (b"one\ntwo\n", "--key-file: {}: a key is one line of visible ASCII characters"),
    ("--key-file", "bytes"): (bytes(range(256)), "--key-file: {}: a key is one line of visible ASCII characters"),
}
"""Flags and kinds of files, with what stands in them and what is said."""


@pytest.mark.parametrize("kind", NO_FILES, ids=" ".join)
@pytest.mark.parametrize("command", [["generate", "hi"], ["bench", "https://127.0.0.1:9"]], ids=["gRPC", "HTTP"])
def test_a_file_that_is_something_else_is_told_by_its_flag_before_anything_is_sent(
    kind: tuple[str, str], command: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """gRPC writes lines of its own about certificates, and then that nobody answers."""
    flag, name = kind
    written, said = NO_FILES[kind]
    if written is not None:
        (tmp_path / name).write_bytes(written)
    assert main([*command, flag, f"{tmp_path}/{name}"]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith(said.format(f"{tmp_path}/{name}"))


def test_a_prompt_that_is_no_text_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(connection, "client", lambda _: nullcontext())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\xff"), encoding="utf-8"))
    assert main(["generate"]) == 1
    assert capsys.readouterr().err == "the input is not valid UTF-8, from byte 1 on\n"


def test_a_reader_that_is_gone_is_no_error_to_tell() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-m", "paceline", "completion", "bash"]
    done = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    os.close(writes)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("writes", ["print('x' * 100_000)", "print('x', flush=True)"], ids=["much", "piece by piece"])
def test_a_reader_that_goes_while_a_command_writes_is_no_error_to_tell(writes: str) -> None:
    script = f"from paceline.commands import completion, main; completion.run = lambda _: {writes}; "
    reads, pipe = os.pipe()
    os.close(reads)
    command = [sys.executable, "-c", script + "raise SystemExit(main(['completion']))"]
    done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    os.close(pipe)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_socket_whose_other_end_is_gone_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def send(_: list[str]) -> int:
        here, there = socket.socketpair()
        there.close()
        with here:
            return here.send(b"x")

    monkeypatch.setattr(completion, "run", send)
    assert main(["completion"]) == 1
    assert capsys.readouterr() == ("", "Broken pipe\n")


def test_certificates_that_fit_are_taken_apart_or_in_one_file(tmp_path: Path) -> None:
    authority = Authority.make()
    ca = authority.write(tmp_path / "ca.pem")
    cert, own = authority.issue(tmp_path / "own", "client")
    both = tmp_path / "both.pem"
    both.write_text(Path(cert).read_text() + Path(own).read_text())
    for given in (["--ca", ca], ["--cert", cert, "--cert-key", own], ["--ca", ca, "--cert", str(both)]):
        files = connection.certificates(generate.arguments(["hi", *given]))
        assert files is not None
        files.credentials()
    assert connection.certificates(generate.arguments(["hi"])) is None
    _, another = authority.issue(tmp_path / "another", "client")
    with pytest.raises(InvalidValueError, match=r"^--cert: .*: no certificate in PEM with its key$"):
        connection.certificates(generate.arguments(["hi", "--cert", cert, "--cert-key", another]))


def test_a_key_of_the_environment_is_told_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(connection.API_KEY, "schl\u00fcssel")
    with pytest.raises(InvalidValueError, match=r"^PACELINE_API_KEY: a key is one line of visible ASCII"):
        connection.key(generate.arguments(["hi"]))


@pytest.mark.parametrize(
    ("text", "said"), [(b" \n\n", "has no line with a prompt"), (b"\xff\xfe", "is not valid UTF-8")]
)
def test_prompts_that_are_none_are_told_before_anything_is_measured(text: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "prompts"
    path.write_bytes(text)
    with pytest.raises(argparse.ArgumentTypeError, match=said):
        bench.prompts(str(path))


@pytest.mark.parametrize("words", [[], [""], [" "], ["a", "b"], ["a\nb"], ["a", "--nope"]])
def test_a_key_needs_one_name_that_a_tenant_can_have(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["make_key", *words])
    with pytest.raises(SystemExit) as end:
        make_key.main()
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (2, "")
    assert err == "paceline key: takes one NAME of a tenant, of printable characters\n"


def test_doctor_judges_a_drafter_beside_the_usual_model(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "CHECKS", ())
    monkeypatch.setattr("sys.argv", ["doctor", "--drafter", "./none"])
    assert doctor.main() == 1
    assert "FAIL model          ./none: no such folder" in capsys.readouterr().out
