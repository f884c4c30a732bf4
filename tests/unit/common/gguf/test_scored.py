"""Tokenizers whose tokens have scores: the best pair is joined first, as SentencePiece does, and texts come back."""

import json
import random
from pathlib import Path
from typing import Any

import gguf
import pytest

from services.common.gguf.file import GgufError
from services.common.gguf.folder import describing_folder
from services.gateway.prompts.text import bytes_of
from services.gateway.prompts.tokenizer import Tokenizer, load_tokenizer
from tests.support.tiny_checkpoints import TinyShape, write_tiny
from tests.support.tiny_gguf import write_gguf

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
BLANK = "\u2581"
SPECIAL = {"<pad>": CONTROL, "<eos>": CONTROL, "<bos>": CONTROL, "<unk>": UNKNOWN, "<end_of_turn>": CONTROL,
           "\n\n": USER_DEFINED, BLANK * 2: USER_DEFINED}  # fmt: skip
LEARNED = {
    "ab": -1.0, "bc": -2.0, "abc": -3.0, BLANK + "a": -4.0, "ca": -5.0, "cab": -6.0, "aa": -7.0, "bb": -8.0,
    BLANK + "ab": -9.0, "é" + "a": -10.0, BLANK: -20.0, "a": -21.0, "b": -22.0, "c": -23.0, "é": -24.0,
}  # fmt: skip
TOKENS = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *LEARNED]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def written(folder: Path, **changes: Any) -> Path:
    """A file with that table, and other keys."""
    scores = [*[-1000.0] * len(SPECIAL), *[0.0] * 256, *LEARNED.values()]
    types = [*SPECIAL.values(), *[BYTE] * 256, *[NORMAL] * len(LEARNED)]
    keys: dict[str, Any] = {"add_space_prefix": False, "unknown_token_id": 3, "bos_token_id": 2, "eos_token_id": 1}

    def more(writer: gguf.GGUFWriter) -> None:
        for name in ("model", "pre", "tokens", "token_type", "merges", "eos_token_id"):
            writer.kv_data[0].pop(f"tokenizer.ggml.{name}", None)
        writer.add_tokenizer_model("llama")
        writer.add_token_list(TOKENS)
        writer.add_token_types(types)
        writer.add_token_scores(changes.get("scores", scores))

    made = write_tiny(folder / "own", 5, TinyShape(vocab=len(TOKENS) + 6, layers=2, taps=(0,))).target
    told = {f"tokenizer.ggml.{name}": changes.get(name, value) for name, value in keys.items()}
    write_gguf(folder / "model.gguf", made, more=more, keys=told)
    return folder / "model.gguf"


def joined(text: str) -> list[str]:
    """What SentencePiece makes of a text without tokens of users: the best pair is joined, of equals the first."""
    parts = list(text.replace(" ", BLANK))
    while True:
        pairs = [(LEARNED[parts[at] + parts[at + 1]], -at) for at in range(len(parts) - 1)
                 if parts[at] + parts[at + 1] in LEARNED]  # fmt: skip
        if not pairs:
            return parts
        at = -max(pairs)[1]
        parts[at : at + 2] = ["".join(parts[at : at + 2])]


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return [TOKENS[token] for token in tokenizer.encode(text, special=False)]


def test_the_best_pair_is_joined_first(tmp_path: Path) -> None:
    tokenizer, source = load_tokenizer(describing_folder(written(tmp_path))), random.Random(4)
    for _ in range(300):
        words = ["".join(source.choices("abcé", k=source.randrange(1, 9))) for _ in range(4)]
        assert pieces(tokenizer, " ".join(words)) == joined(" ".join(words))


def test_texts_begin_as_the_file_says_and_come_back(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(describing_folder(written(tmp_path)))
    assert tokenizer.encode("ab")[0] == TOKENS.index("<bos>")
    assert pieces(tokenizer, "a  b\n\nc") == ["a", BLANK * 2, "b", "\n\n", "c"]
    assert pieces(tokenizer, "🎉<end_of_turn>") == ["<0xF0>", "<0x9F>", "<0x8E>", "<0x89>", "<end_of_turn>"]
    for text in ("ab  cab é", " a", "🎉\n日本", "<0x41>"):
        assert bytes_of(tokenizer.token_bytes, tokenizer.encode(text)).decode() == text


def test_the_end_of_a_turn_ends_a_text(tmp_path: Path) -> None:
    folder = describing_folder(written(tmp_path))
    assert json.loads((folder / "generation_config.json").read_text()) == {
        "eos_token_id": [1, TOKENS.index("<end_of_turn>")]
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"add_space_prefix": True}, "a blank before each text is not served; put the model's own tokenizer.json"),
        ({"scores": [0.0]}, "does not rate each of"),
    ],
)
def test_what_is_not_served_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(GgufError, match=message):
        describing_folder(written(tmp_path, **changes))
