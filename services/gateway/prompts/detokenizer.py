"""Token ids to text, token by token, without ever showing part of a character.

Tokens are byte strings, so the text is an incremental UTF-8 decoding of their concatenation. Invalid sequences become
U+FFFD by maximal subparts, for byte-level tokens as in the tokenizers library: the pieces join to its full decode. With
a byte fallback that has one for each byte.
"""

import codecs
from collections.abc import Mapping, Sequence


class TokenBytes:
    """The bytes of every token; special tokens and ids without a token have none."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        """Takes the bytes by token id."""
        self._pieces = tuple(pieces)

    def __len__(self) -> int:
        """Number of ids known."""
        return len(self._pieces)

    def with_pieces(self, pieces: Mapping[int, bytes]) -> "TokenBytes":
        """The same with other bytes for some tokens."""
        return TokenBytes([pieces.get(token_id, piece) for token_id, piece in enumerate(self._pieces)])

    def of(self, *token_ids: int) -> bytes:
        """The bytes of tokens, joined; empty for ids beyond the table, as a padded vocabulary has."""
        pieces, known = self._pieces, len(self._pieces)
        found = b""
        for token_id in token_ids:
            found += pieces[token_id] if token_id < known else b""
        return found


class Detokenizer:
    """The text of one request's output."""

    def __init__(self, token_bytes: TokenBytes) -> None:
        """Starts with no output."""
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, *token_ids: int) -> str:
        """The characters that these tokens complete; may be empty."""
        return self._decoder.decode(self._token_bytes.of(*token_ids))

    def finish(self) -> str:
        """U+FFFD when the output ends inside a character, as a full decode shows it; else empty."""
        return self._decoder.decode(b"", final=True)
