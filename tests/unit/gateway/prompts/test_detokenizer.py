"""Incremental text equals the full decode of the tokenizers library, and shows whole characters only."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, normalizers

from services.common.request.errors import PacelineError
from services.gateway.prompts.text import TextStream, bytes_of
from services.gateway.prompts.tokenizer import Tokenizer, TokenizerError, load_tokenizer, longest_token
from tests.support.fakes_tokenizer import SPECIAL, TEXT, build_tokenizer, write_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokenizer]:
    loaded = load_tokenizer(write_tokenizer(tmp_path_factory.mktemp("tokenizer")))
    yield loaded
    loaded.close()


def incremental(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    stream = TextStream(tokenizer.token_bytes, (), 0)
    return [*(stream.push([token]).text for token in ids), stream.finish().text]


def test_random_ids_join_to_the_full_decode(tokenizer: Tokenizer) -> None:
    random_numbers = random.Random(2)
    for _ in range(2000):
        ids = random_numbers.choices(range(len(tokenizer.token_bytes)), k=random_numbers.randint(0, 40))
        assert "".join(incremental(tokenizer, ids)) == tokenizer.decode(ids), ids


@pytest.mark.parametrize("text", [*TEXT, "👩‍👩‍👧" * 5, "a<日>b", "\u2028\x00ÿ", "𝄞" * 3])
def test_real_text_comes_back_and_never_as_half_a_character(tokenizer: Tokenizer, text: str) -> None:
    pieces = incremental(tokenizer, tokenizer.encode(text))
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)


def test_bytes_one_by_one_give_each_character_once(tokenizer: Tokenizer) -> None:
    text = "日é🎉"
    by_byte = {bytes_of(tokenizer.token_bytes, (token,)): token for token in range(256 + len(SPECIAL) + 200)}
    ids = [by_byte[bytes([byte])] for byte in text.encode()]
    assert [piece for piece in incremental(tokenizer, ids) if piece] == [*text]


def test_an_output_that_ends_inside_a_character_ends_as_the_full_decode_does(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("🎉")[:-1]
    assert "".join(incremental(tokenizer, ids)) == tokenizer.decode(ids) == "\ufffd"


def test_special_tokens_and_ids_of_a_padded_vocabulary_have_no_text(tokenizer: Tokenizer) -> None:
    special = tokenizer.encode(SPECIAL[0])
    assert len(special) == 1
    assert incremental(tokenizer, [*special, 100_000]) == ["", "", ""]


def test_stop_strings_count_tokens_over_any_commit_split(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("def add(first, second):\n    return first + second\n")
    text = tokenizer.decode(ids)
    for stop in ("return", "n f", "second):\n"):
        ends = next(count for count in range(len(ids) + 1) if stop in tokenizer.decode(ids[:count]))
        for size in (1, 2, 3, 8, len(ids)):
            stream, kept, shown = TextStream(tokenizer.token_bytes, (stop,), 0), 0, ""
            for start in range(0, len(ids), size):
                piece = stream.push(ids[start : start + size])
                kept, shown = kept + piece.kept, shown + piece.text
                if piece.stopped:
                    break
            assert (kept, shown) == (ends, text[: text.index(stop)])


def test_stop_strings_do_not_end_the_first_min_tokens(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("the the the the")
    stream = TextStream(tokenizer.token_bytes, ("the",), len(ids) - 1)
    piece = stream.push(ids)
    assert piece.stopped
    assert (piece.kept, piece.text) == (len(ids), "the the the ")


def test_a_stop_token_is_no_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("fox jumps")
    piece = TextStream(tokenizer.token_bytes, (), 0).push(ids, hidden=1)
    assert (piece.kept, piece.text) == (len(ids), tokenizer.decode(ids[:-1]))


def test_chat_follows_the_template_and_stays_in_its_sandbox(tokenizer: Tokenizer, tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "the {{ 7 * 7 }} fox"}]
    assert "{{ 7 * 7 }}" in tokenizer.decode(tokenizer.encode_chat(messages))
    folder = write_tokenizer(tmp_path)
    (folder / "chat_template.jinja").write_text("{{ ''.__class__.__mro__ }}")
    unsafe = load_tokenizer(folder)
    with pytest.raises(PacelineError) as refused:
        unsafe.encode_chat(messages)
    assert refused.value.field == "prompt.chat"
    unsafe.close()


def test_a_missing_or_foreign_tokenizer_is_refused_by_file(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)
    folder = write_tokenizer(tmp_path / "other")
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"decoder": {"type": "ByteFallback"}}))
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        load_tokenizer(folder)


@pytest.mark.parametrize(
    ("normalizer", "longest"),
    [(None, 25), (normalizers.NFC(), 75), (normalizers.NFKC(), None), (normalizers.Strip(), None)],
)
def test_no_token_is_longer_than_is_said(normalizer: Any, longest: int | None) -> None:
    """Nothing is said where the normaliser may drop any amount of text."""
    built = build_tokenizer()
    if normalizer is not None:
        built.normalizer = normalizer
    assert longest_token(built) == longest
    if longest is not None:
        for text in ("<|im_start|>" * 9, "the quick brown fox " * 9, "\u1112\u1161\u11ab" * 99, "<日>" * 9):
            assert len(text.encode()) <= longest * len(built.encode(text).ids)


def test_added_tokens_that_swallow_blanks_are_of_no_known_length() -> None:
    built = build_tokenizer()
    built.add_tokens([AddedToken("<wide>", lstrip=True)])
    assert len(built.encode(" " * 500 + "<wide>").ids) == 1
    assert longest_token(built) is None
