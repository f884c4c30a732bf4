"""Prompts to token ids and back to bytes, by the checkpoint's own tokenizer.json."""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as HuggingFaceTokenizer

from services.common.errors import Code, PacelineError, Reason
from services.gateway.chat_template import FIELD as CHAT_FIELD
from services.gateway.chat_template import ChatTemplate, load_chat_template
from services.gateway.detokenizer import TokenBytes, byte_alphabet


class TokenizerError(ValueError):
    """A tokenizer folder that cannot be served; the message names the file."""


class Tokenizer:
    """The tokenizer of one model; immutable and safe to use from several threads."""

    def __init__(self, tokenizer: HuggingFaceTokenizer, chat_template: ChatTemplate | None) -> None:
        """Takes a byte-level tokenizer and the model's chat template, if it has one."""
        self._tokenizer = tokenizer
        self._chat_template = chat_template
        self.token_bytes = _token_bytes(tokenizer)

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text, with the special tokens that the tokenizer itself adds."""
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    def encode_chat(self, messages: list[dict[str, str]]) -> list[int]:
        """Token ids of a chat: dictionaries with role and content.

        Raises:
            PacelineError: UNSUPPORTED without a template, INVALID_FIELD when the template refuses.
        """
        if self._chat_template is None:
            text = "this model has no chat template"
            raise PacelineError(Code.INVALID_ARGUMENT, Reason.UNSUPPORTED, text, field=CHAT_FIELD)
        ids: list[int] = self._tokenizer.encode(self._chat_template.render(messages), add_special_tokens=False).ids
        return ids

    def decode(self, token_ids: list[int]) -> str:
        """The text of all tokens at once, special tokens left out."""
        text: str = self._tokenizer.decode(token_ids, skip_special_tokens=True)
        return text


def load_tokenizer(folder: Path) -> Tokenizer:
    """Reads tokenizer.json and the chat template of a checkpoint folder.

    Raises:
        TokenizerError: a file is missing or broken, or the tokenizer is not byte-level.
    """
    path = folder / "tokenizer.json"
    try:
        tokenizer = HuggingFaceTokenizer.from_file(str(path))
        template = load_chat_template(folder)
    except Exception as error:
        raise TokenizerError(f"{path}: cannot be read: {error}") from error
    decoder = json.loads(tokenizer.to_str()).get("decoder")
    if not _is_byte_level(decoder):
        raise TokenizerError(f"{path}: decoder {decoder and decoder.get('type')} is not supported, ByteLevel is")
    return Tokenizer(tokenizer, template)


def _is_byte_level(decoder: dict[str, Any] | None) -> bool:
    return decoder is not None and decoder.get("type") == "ByteLevel"


def _token_bytes(tokenizer: HuggingFaceTokenizer) -> TokenBytes:
    alphabet = byte_alphabet()
    special = {token_id for token_id, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    vocabulary: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
    pieces = [b""] * (max(vocabulary.values(), default=-1) + 1)
    for token, token_id in vocabulary.items():
        if token_id not in special:
            pieces[token_id] = _spelled(token, alphabet)
    return TokenBytes(pieces)


def _spelled(token: str, alphabet: dict[str, int]) -> bytes:
    """Bytes of a token; one with a character outside the alphabet was added as plain text."""
    if all(character in alphabet for character in token):
        return bytes(alphabet[character] for character in token)
    return token.encode()
