"""A model's tokenizer as llguidance reads it: which text a token is, and how a text is spelled that a grammar forces.

The library itself takes every added token whose name looks like a tag, such as <tool_call>, for one that is no text. A
text that a grammar forces is spelled with these tokens nevertheless, and the library then refuses its own choice. Here
a token is text unless the tokenizer says that it is special, and no text is spelled with a special one.
"""

import json
from collections.abc import Iterator, Sequence

from llguidance import LLTokenizer
from llguidance._tokenizer import TokenizerWrapper
from tokenizers import Tokenizer

from services.common.request.spelling import speller

_CHARACTER = r'[^"\\\x00-\x1F\x7F]'
SLICES = [*(_CHARACTER + f"{{1,{most}}}" for most in (6, 10, 16)), _CHARACTER + "+"]
"""Kinds of tokens that are masked as a whole where a text in quotes may go on by any of a kind: by their lengths.

The library's own stop at 10 characters, so that of a text of at most 20 the longer tokens were tried one by one.
"""


class Spelling:
    """What the library asks of a tokenizer, by the names that it reads."""

    bos_token_id = None

    def __init__(self, tokenizer_json: str, vocab_size: int, eos_ids: Sequence[int]) -> None:
        """Takes the text of tokenizer.json, and the model's own number of token ids and ends of a text.

        Raises:
            ValueError: its tokens are no bytes.
        """
        self.eos_token_id = eos_ids[0]
        spell = speller(json.loads(tokenizer_json).get("decoder"))
        if spell is None:
            raise ValueError("the tokenizer's tokens have no bytes of their own")
        self._tokenizer = Tokenizer.from_str(tokenizer_json)
        self._tokenizer.encode_special_tokens = True
        added = self._tokenizer.get_added_tokens_decoder().items()
        special = {token: one.content for token, one in added if one.special and token < vocab_size}
        pieces = {
            token: spell(name)
            for name, token in self._tokenizer.get_vocab(with_added_tokens=True).items()
            if token < vocab_size and token not in special
        }
        no_text = {token: special.get(token, f"<[{token}]>") for token in range(vocab_size) if token not in pieces}
        self.special_token_ids = [*no_text]
        self.tokens = [pieces[token] if token in pieces else no_text[token].encode() for token in range(vocab_size)]
        self._ids = {piece: token for token, piece in pieces.items()}
        self._longest = max(map(len, self._ids), default=1)

    def __call__(self, text: bytes) -> list[int]:
        """The tokens of a text; those of the longest pieces where the tokenizer changes the text on its way."""
        ids: list[int] = self._tokenizer.encode(text.decode(errors="replace"), add_special_tokens=False).ids
        if b"".join(self.tokens[token] for token in ids) == text:
            return ids
        return [*self._pieces(text)]

    def _pieces(self, text: bytes) -> Iterator[int]:
        at = 0
        while at < len(text):
            sizes = range(min(self._longest, len(text) - at), 0, -1)
            size = next((size for size in sizes if text[at : at + size] in self._ids), None)
            if size is not None:
                yield self._ids[text[at : at + size]]
            at += size or 1


def masking_tokenizer(tokenizer_json: str, vocab_size: int, eos_ids: Sequence[int]) -> LLTokenizer:
    """The tokenizer that grammars are compiled with.

    Raises:
        ValueError: the library cannot read it.
    """
    spelling = Spelling(tokenizer_json, vocab_size, eos_ids)
    return LLTokenizer(TokenizerWrapper(spelling), n_vocab=vocab_size, eos_token=list(eos_ids), slices=SLICES)
