"""Wrong flags and files of keys, limits and TLS: one line that names the flag or file and says what to do."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy import up
from deploy.others_flags import ELSEWHERE
from deploy.stack import EMBEDDED
from tests.unit.common.serving.certificates import Authority
from tests.unit.deploy.doctored import doctored

MODEL = str(EMBEDDED / "target")
DIGEST = "0" * 64
FLAGS = {
    ("--port", "http"): "--port: 'http' is no port",
    ("--port", "99999"): "--port: '99999' is no port",
    ("--port=-1",): "--port: '-1' is no port",
    ("--port", "\N{FULLWIDTH DIGIT EIGHT}"): "--port: '\N{FULLWIDTH DIGIT EIGHT}' is no port",
    ("--SLOTS", "4"): "--SLOTS: there is no such flag; did you mean --slots?",
    ("--http", "http://127.0.0.1:1"): "leave out http://",
    ("--grpc", "127.0.0.1:9", "--http", "127.0.0.1:9"): "--http: 127.0.0.1:9 is taken by another flag",
    ("--host", "nowhere.invalid"): "the host is not known",
    ("--model", "a\0b"): "--model: no file can have this name",
    ("--model", "/" + "x" * 5000): "--model: no file can have this name",
    ("--drafter", "y" * 300): "--drafter: no file can have this name",
    ("--api-key-file", "{tmp}/none"): "--api-key-file: {tmp}/none: No such file",
    ("--api-key-file", "{tmp}"): "--api-key-file: {tmp}: Is a directory",
    ("--config", "{tmp}/none"): "--config: {tmp}/none: No such file",
    ("--config", MODEL + "/config.json"): "--config: " + MODEL + "/config.json: ",
    ("--http-cors-origins", "example.com"): "'example.com' is no origin, as https://",
    ("--tenants", "{tmp}"): "{tmp}: cannot be read: ",
    ("--slots", "many"): "--slots",
    ("--max-num-seqs", "many"): "--max-num-seqs: must be a whole number, not 'many'",
    ("--host", "127.0.0.1:8000"): "--host: '127.0.0.1:8000' has a port: give that by --port, or both by --http",
    ("--host", "[::1]:8000"): "--host: '[::1]:8000' has a port: give that by --port, or both by --http",
    ("--model", " "): "' ': is blank, no name; ",
    ("--model", "SmolLM2"): "SmolLM2: no such folder; did you mean smollm2?",
    ("--memory-fraction", "90%"): "settings: --memory-fraction: must be a number, not '90%'",
    ("--target.threads", "two"): "settings: --target.threads: must be a whole number, not 'two'",
    ("--no-enable-prefix-caching",): "there is no such flag; take --target.prefix-cache false",
    ("--slots",): "--slots: needs a value",
    ("--target.widths",): "--target.widths: needs a value",
    ("--target.widths", "--slots", "4"): "--target.widths: needs a value",
    ("--http-page",): "--http-page: needs a value",
    ("--drafter.device", "tpu"): "settings: --drafter.device: must be one of cpu, cuda",
    ("--proposer", "DFlash"): "--proposer: 'DFlash' is none of dflash, ngram, none; did you mean dflash?",
    ("--proposer", "dflash"): "--proposer: dflash needs a drafter: name its folder by --drafter, or ",
    ("--host", "[::1"): "is not host:port; write it as in --http 127.0.0.1:8000",
    ("--name", "a\nb"): "--name: a model's name is at most 256 printable characters",
    ("--served-model-name", "x" * 300): "--served-model-name: a model's name is at most 256 printable characters",
    ("--max-num-seqs", "0"): "settings: --max-num-seqs: must be in ",
    ("--max-model-len", "long"): "settings: --max-model-len: must be ",
    ("--max-model-len=-5",): "settings: --max-model-len must not be negative",
    ("--gpu-memory-utilization", "1.5"): "settings: --gpu-memory-utilization must lie in ",
    ("--memory-fraction", "1.5"): "settings: --memory-fraction must lie in ",
    ("--dtype", "fp8"): "settings: --dtype: must be one of ",
    ("--target.dtype", "fp8"): "settings: --target.dtype: must be one of ",
    ("--target.widths", "8"): "settings: --target.widths: must ascend from 1",
    ("--target.widths", "1,4096"): "settings: --target.widths: must be 1024 at most",
    ("--ray-address", "nonsense"): "settings: --ray-address: 'nonsense' is no address of a Ray: host:port, or auto",
    ("--pairs", "100000"): " of memory in float32, and ",
    ("--kv-dtype=fp4",): "settings: --kv-dtype: must be one of ",
    ("--slots=-1",): "settings: --slots: must be in ",
    ("--ssl-certfile", "/none", "--ssl-keyfile", "/none"): "settings: --ssl-certfile: /none: no such file",
    ("--widths", "1,8"): "--widths",
    ("-p", "8000"): "-p: flags start with --",
    ("\N{EM DASH}port", "8000"): "flags start with --, two hyphens and no dash: --port",
    ("acme/another",): "acme/another: flags start with --; one model is served, and --drafter FOLDER names",
    ("--max_model_len", "1m"): f"--max_model_len: 1000000 are too many: {MODEL} has 2048 positions",
    ("--max-model-len=1m",): "--max-model-len: 1000000 are too many: ",
    ("--ctx-size", "1m"): f"--ctx-size: 1000000 are too many: {MODEL} has 2048 positions",
    ("--max-running-requests", "0"): "settings: --max-running-requests: must be in ",
    ("--nothing-alike", "1"): "--nothing-alike: there is no such flag; see --help",
    ("--api_key", "a b"): "a key is made of visible ASCII",
    ("--max_num_seqs", "0"): "settings: --max_num_seqs: must be in ",
    ("--tensor_parallel_size", "2"): "--tensor_parallel_size: there is no such flag; a model is served by one GPU",
    ("--ssl-keyfile", "/none"): "settings: --ssl-keyfile: needs tls_cert beside",
    ("--tls-ca", "/none"): "settings: --tls-ca: needs tls_cert and tls_key beside",
}
TENANTS = {
    "[[tenant]": "is no TOML: ",
    "": "has no [[tenant]] table",
    "tenant = 3": "is made of [[tenant]] tables",
    "[[tenant]]\nname='a'": "a [[tenant]] has no key_sha256",
    f"[[tenant]]\nkey_sha256=['{DIGEST}']": "a [[tenant]] has no name",
    f"[[tenant]]\nname='a'\nkey_sha256='{DIGEST}'": "key_sha256, a list of digests",
    "[[tenant]]\nname='a'\nkey='k'": "unknown keys ['key']",
    f"[[tenant]]\nname='a'\nkey_sha256=['{DIGEST}']\nmax_requests=-3": "max_requests of 'a': -3 is negative",
}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The one line with which a command line is refused, by the doctor in the same words."""
    monkeypatch.setattr(up, "Stack", lambda *given: pytest.fail("it was started"))
    monkeypatch.setattr(up, "leave_when_asked", lambda: None)
    monkeypatch.setattr(up, "stop_signal", lambda: None)

    def run(*flags: str) -> str:
        usual = ("--model", MODEL, "--address", "127.0.0.1:0", "--http", "127.0.0.1:0")
        monkeypatch.setattr("sys.argv", ["up", *usual, *flags])
        try:
            code: object = up.main()
        except SystemExit as end:
            code = end.code
        (line,) = "".join(capsys.readouterr()).splitlines()
        told_by_doctor = doctored(monkeypatch, capsys, *usual, *flags)
        assert told_by_doctor == (code, [line]), told_by_doctor
        assert code in (1, 2)
        assert not re.search(r"[A-Z]\w+Error\b|Errno|object has no|Traceback", line)
        return line

    return run


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
def test_a_wrong_flag_is_named(flags: tuple[str, ...], told: Callable[..., str], tmp_path: Path) -> None:
    said = FLAGS[flags].format(tmp=tmp_path)
    assert said in told(*(flag.format(tmp=tmp_path) for flag in flags))


def test_a_wrong_variable_is_named_as_it_stands_in_the_environment(
    told: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACELINE_DTYPE", "fp8")
    assert told().startswith("settings: PACELINE_DTYPE: must be one of ")
    assert told("--dtype", "fp9").startswith("settings: --dtype: must be one of "), "a flag wins"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('slots = "x"', "--config: {}: slots: must be a whole number, not 'x'"),
        ("slots = 0", "--config: {}: slots: must be in "),
        ("[target]\nwidths = [8]", "--config: {}: target.widths: must ascend from 1"),
        ("slots: 4", "--config: {}: Expected '=' after a key in a key/value pair (at line 1, column 6); "),
        ('{"slots": 4}', "settings are written as TOML: name = value"),
        ("slots = '\xff'", "--config: {}: is not valid UTF-8; settings are written as TOML"),
    ],
)
def test_what_is_wrong_in_a_file_of_settings_is_named_with_the_file(
    text: str, said: str, told: Callable[..., str], tmp_path: Path
) -> None:
    file = tmp_path / "settings.toml"
    file.write_bytes(text.encode("latin-1"))
    assert said.format(file) in told("--config", str(file))


@pytest.mark.parametrize("flag", ELSEWHERE)
def test_a_flag_of_another_server_is_answered_with_what_stands_for_it(flag: str, told: Callable[..., str]) -> None:
    line = told(flag, "2")
    assert line.endswith(f"{flag}: there is no such flag; {ELSEWHERE[flag]}")


def test_what_stands_for_foreign_flags_is_there() -> None:
    from deploy.flags import parser

    known = parser().format_help()
    for remedy in ELSEWHERE.values():
        for flag in re.findall(r"--[a-z][\w.-]*", remedy):
            assert flag in known


@pytest.mark.parametrize("text", TENANTS)
def test_a_wrong_file_of_tenants_is_told_in_words(text: str, told: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "tenants.toml").write_text(text)
    line = told("--tenants", str(tmp_path / "tenants.toml"))
    assert f"{tmp_path}/tenants.toml: " in line
    assert TENANTS[text] in line and line.endswith("; paceline key NAME prints an entry")


def test_files_of_tls_that_do_not_belong_together_are_told(told: Callable[..., str], tmp_path: Path) -> None:
    """Gateways would end with them after the pair was loaded."""
    authority = Authority.make()
    cert, key = authority.issue(tmp_path / "tls", "gateway")
    _, other = authority.issue(tmp_path / "other", "gateway")
    authority.write(tmp_path / "ca.pem")
    (tmp_path / "no.pem").write_text("-----BEGIN NOTHING-----\n")
    flags = ("--tls-cert", "--tls-key", "--tls-ca")
    cases = {
        (key, cert): "are tls_cert and tls_key swapped?",
        (cert, cert): f"--tls-key: {cert}: holds no private key in PEM",
        (cert, other): f"--tls-key: {other}: is not the key of {cert}",
        (str(tmp_path / "no.pem"), key): "holds no certificate in PEM",
        (str(tmp_path), key): f"--tls-cert: {tmp_path}: cannot be read",
        (cert, key, key): f"--tls-ca: {key}: holds no certificate in PEM",
    }
    for files, said in cases.items():
        given = [word for pair in zip(flags, files, strict=False) for word in pair]
        assert said in told(*given)
