"""A checkpoint's tokenizer and template are strangers' work: they fail in words and learn no secret."""

import os
from pathlib import Path

import pytest
from tokenizers import Regex, pre_tokenizers

from services.common.model.fields.errors import ModelError
from services.common.model.fields.fields import read_object
from services.common.request.errors import PacelineError
from services.gateway.prompts.chat_renderer import ENVIRONMENT
from services.gateway.prompts.tokenizer import Tokenizer, TokenizerError, load_tokenizer
from tests.support.fakes_tokenizer import build_tokenizer, write_tokenizer


def test_an_expression_that_takes_too_many_steps_is_a_refusal() -> None:
    tokenizer = build_tokenizer()
    split = pre_tokenizers.Split(Regex("(x+x+)+y"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    hostile = Tokenizer(tokenizer, None)
    assert hostile.encode("hello")
    with pytest.raises(PacelineError, match="tokenizer fails at this text") as refused:
        hostile.encode("x" * 40)
    assert refused.value.field == "prompt" and len(refused.value.message) < 300


def test_a_text_far_beyond_the_context_is_refused_by_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer(build_tokenizer(), None)
    longest, encode = 0, Tokenizer._encoded

    def counted(self: Tokenizer, text: str, special_tokens: bool) -> list[int]:
        nonlocal longest
        ids = encode(self, text, special_tokens)
        longest = max(longest, len(ids))
        return ids

    monkeypatch.setattr(Tokenizer, "_encoded", counted)
    for text in ("a", ",x1", "a b ", "\N{GRINNING FACE}", "the "):
        longest = 0
        with pytest.raises(PacelineError, match="context limit is 4096"):
            tokenizer.encode(text * ((1 << 20) // len(text.encode())), 4096)
        assert longest < 1 << 19, "most of it is never tokenised"
    text = "hello, world " * 20_000
    assert tokenizer.encode(text, len(tokenizer.encode(text))) == tokenizer.encode(text), (
        "what may fit is not judged by parts"
    )


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff" * 1000, b'{"model": {"type": "BPE"}}', b"[" * 100_000])
def test_a_broken_tokenizer_is_refused_by_its_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path, name: str) -> None:
    write_tokenizer(tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(TokenizerError, match="no regular file"):
        load_tokenizer(tmp_path)


def test_a_pipe_in_the_place_of_config_json_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(ModelError, match="no regular file"):
        read_object(tmp_path / "config.json")


def test_the_process_of_a_template_inherits_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_TARGET_SECRET", "hush")
    tokenizer = load_tokenizer(write_tokenizer(tmp_path))
    try:
        tokenizer.encode_chat([{"role": "user", "content": "hi"}])
        children = [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
        theirs = [told(pid, "environ") for pid in children if b"chat_child" in told(pid, "cmdline")]
        assert theirs and all(theirs), "it waits for the next chat"
        for environment in theirs:
            assert {line.partition(b"=")[0].decode() for line in environment.split(b"\0") if line} <= {*ENVIRONMENT}
    finally:
        tokenizer.close()


def told(pid: int, what: str) -> bytes:
    """What the kernel tells of a process; nothing of another test's child that has just ended."""
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:
        return b""
