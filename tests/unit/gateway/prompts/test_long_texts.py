"""A text that cannot fit is refused by its parts: no more than one of them is ever tokenised at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.common.request.errors import PacelineError, Reason
from services.gateway.prompts.tokenizer import FIRST_CHARACTERS, Tokenizer, load_tokenizer
from tests.support.fakes_tokenizer import write_tokenizer

LIMIT = 65_536
TEXTS = {
    "one letter": "a" * 1_000_000,
    "combining marks": "a" + "\u0301" * 1_000_000,
    "four bytes each": "\U0001f600" * 500_000,
    "long tokens first": "hello " * 20_000 + "\U0001f600" * 500_000,
    "blanks": " " * 2_000_000,
}


class Counted:
    """Lengths of the texts that a tokenizer was given."""

    def __init__(self, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        encoded = tokenizer._encoded

        def counted(text: str, special_tokens: bool) -> list[int]:
            self.sizes.append(len(text))
            return encoded(text, special_tokens)

        monkeypatch.setattr(tokenizer, "_encoded", counted)


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_that_cannot_fit_is_never_tokenised_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    tokenizer = load_tokenizer(write_tokenizer(tmp_path))
    counted = Counted(tokenizer, monkeypatch)
    with pytest.raises(PacelineError) as refused:
        tokenizer.encode(TEXTS[name], LIMIT)
    assert refused.value.reason is Reason.CONTEXT_LIMIT
    assert max(counted.sizes) <= FIRST_CHARACTERS
    assert sum(counted.sizes) <= len(TEXTS[name]), "each part once"
    tokenizer.close()


@pytest.mark.parametrize("text", ["the quick brown fox " * 10_000, "é" * 70_000, "a" * 120_000])
def test_a_text_that_may_fit_has_the_tokens_of_all_of_it(tmp_path: Path, text: str) -> None:
    tokenizer = load_tokenizer(write_tokenizer(tmp_path))
    assert tokenizer.encode(text, 1 << 20) == tokenizer.encode(text)
    tokenizer.close()
