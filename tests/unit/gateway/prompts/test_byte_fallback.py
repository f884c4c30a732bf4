"""Tokens that are text, beside tokens for single bytes, as Gemma has them: every text comes back, piece by piece."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

from services.common.preflight.source import Source
from services.common.preflight.text import tokenizer_problem
from services.common.request.spelling import speller
from services.gateway.prompts.text import TextStream, bytes_of
from services.gateway.prompts.tokenizer import Tokenizer as Served
from services.gateway.prompts.tokenizer import TokenizerError, load_tokenizer

SPECIAL = ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>")
PIECES = [*"abcdefghijklmnopqrstuvwxyz", "\u2581", "é", "日", "th", "the", "\u2581the", "\u2581\u2581"]
MERGES = [("t", "h"), ("th", "e"), ("\u2581", "the"), ("\u2581", "\u2581")]
TEXTS = [
    "the cat",
    " the  the",
    "  leading",
    "no blank\nthen a line",
    "日本 é 🎉👩‍👩‍👧",
    "a\u2581b <0x41> <bos",
    "",
    " ",
]


def made(strip: bool = False) -> Tokenizer:
    names = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES]
    vocabulary = {name: index for index, name in enumerate(names)}
    tokenizer = Tokenizer(models.BPE(vocabulary, MERGES, byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    parts: list[Any] = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(parts + [decoders.Strip(" ", 1, 0)] * strip)
    tokenizer.post_processor = processors.TemplateProcessing("<bos> $A", special_tokens=[("<bos>", 2)])
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIAL])
    tokenizer.add_tokens([AddedToken("\n\n", special=False, normalized=False)])
    return tokenizer


def written(folder: Path, strip: bool = False) -> Path:
    made(strip).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<eos>"}))
    return folder


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return load_tokenizer(written(tmp_path_factory.mktemp("fallback")))


def incremental(tokenizer: Served, ids: list[int]) -> list[str]:
    stream = TextStream(tokenizer.token_bytes, (), 0)
    return [*(stream.push([token]).text for token in ids), stream.finish().text]


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back_and_never_as_half_a_character(tokenizer: Served, text: str) -> None:
    ids = tokenizer.encode(text)
    pieces = incremental(tokenizer, ids)
    assert ids[0] == SPECIAL.index("<bos>")
    # The mark for a blank cannot be told from one.
    assert "".join(pieces) == tokenizer.decode(ids) == text.replace("\u2581", " ")
    assert not any("\ufffd" in piece for piece in pieces)


def test_tokens_of_single_bytes_and_of_blanks_are_what_they_stand_for(tokenizer: Served) -> None:
    ids = tokenizer.encode("🎉 the\n\n", special=False)
    spelled = [bytes_of(tokenizer.token_bytes, (token,)) for token in ids]
    assert spelled == [b"\xf0", b"\x9f", b"\x8e", b"\x89", b" the", b"\n\n"]
    assert incremental(tokenizer, ids) == ["", "", "", "🎉", " the", "\n\n", ""]
    assert tokenizer.special_ids(("<end_of_turn>", "the")) == (SPECIAL.index("<end_of_turn>"),)


def test_an_output_that_ends_inside_a_character_ends_with_a_replacement(tokenizer: Served) -> None:
    assert incremental(tokenizer, tokenizer.encode("é🎉", special=False)[:-1])[-1] == "\ufffd"


def test_outputs_can_be_ruled_by_grammars(tokenizer: Served) -> None:
    assert tokenizer.grammars is not None


def test_one_that_drops_a_blank_where_a_text_begins_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="decoder Sequence is not supported"):
        load_tokenizer(written(tmp_path, strip=True))


def test_a_checkpoint_with_one_has_no_problem(tmp_path: Path) -> None:
    written(tmp_path)
    assert tokenizer_problem(Source(str(tmp_path)), 320) is None
    problem = tokenizer_problem(Source(str(written(tmp_path, strip=True))), 320)
    assert problem is not None and "decoder Sequence is not supported" in problem.sentence


@pytest.mark.parametrize(
    "decoder", [None, {}, {"type": "Metaspace"}, {"type": "Sequence", "decoders": []}, "ByteLevel"]
)
def test_other_decoders_spell_no_bytes(decoder: Any) -> None:
    assert speller(decoder) is None
