"""The text side of one request, counted in tokens: detokenisation and stop strings."""

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from services.gateway.prompts.stop_strings import StopCutter, StopStrings

TokenBytes: TypeAlias = tuple[bytes, ...]
"""The bytes of every token by its id; special tokens and ids without a token have none."""


def bytes_of(pieces: TokenBytes, token_ids: Sequence[int]) -> bytes:
    """The bytes of tokens, joined; empty for ids beyond the table, as a padded vocabulary has."""
    known, found = len(pieces), b""
    for token_id in token_ids:
        found += pieces[token_id] if token_id < known else b""
    return found


@dataclass(frozen=True, slots=True)
class Piece:
    """What a commit added: `kept` of its tokens belong to the output, `text` became final with them."""

    kept: int
    text: str
    stopped: bool


class TextStream:
    """Turns committed tokens into final text: whole characters, and U+FFFD where the output ends inside one."""

    def __init__(self, token_bytes: TokenBytes, stop: Sequence[str], min_tokens: int, shows_stop: bool = False) -> None:
        """Starts with no output; stop strings that end within the first `min_tokens` tokens do not count.

        With `shows_stop` the text ends with the one that ended it.
        """
        self._pieces = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._cutter = StopCutter(StopStrings(stop), shows_stop) if stop else None
        self._min_tokens = min_tokens
        self._count = 0

    def push(self, token_ids: Sequence[int], hidden: int = 0) -> Piece:
        """Adds one commit.

        Args:
            token_ids: the tokens in order.
            hidden: how many at the end are stop tokens, which are no part of the text.
        """
        visible = len(token_ids) - hidden
        if self._cutter is None:
            return Piece(len(token_ids), self._decoder.decode(bytes_of(self._pieces, token_ids[:visible])), False)
        texts: list[str] = []
        for index, token_id in enumerate(token_ids):
            self._count += 1
            text = self._decoder.decode(bytes_of(self._pieces, (token_id,))) if index < visible else ""
            final, stopped = self._cutter.push(text, armed=self._count > self._min_tokens)
            texts.append(final)
            if stopped:
                return Piece(index + 1, "".join(texts), True)
        return Piece(len(token_ids), "".join(texts), False)

    @property
    def matched(self) -> str:
        """The stop string that ended the text; empty without."""
        return self._cutter.matched if self._cutter else ""

    def finish(self) -> Piece:
        """What the end of the output makes final; a stop string may end in a character cut short."""
        tail = self._decoder.decode(b"", final=True)
        if self._cutter is None:
            return Piece(0, tail, False)
        final, stopped = self._cutter.push(tail, armed=self._count > self._min_tokens)
        return Piece(0, final if stopped else final + self._cutter.finish(), stopped)
