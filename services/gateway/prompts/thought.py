"""Counts the tokens of a thought."""

from collections.abc import Callable, Sequence

OPEN, CLOSE = "<think>", "</think>"
"""Tags of a thought."""
Spell = Callable[[int], bytes]
"""The bytes of a token, special ones by their names."""


class ThoughtCount:
    """Counts the tokens of an answer's thought, its tags among them; one that is not closed goes on to the end.

    Once it has `ended` nothing more is counted.
    """

    def __init__(self, spell: Spell, begun: bool) -> None:
        """`begun` says that the prompt has opened the thought."""
        self.tokens = 0
        self._spell = spell
        self._text = b""
        self._seen = 0
        self._begun = begun
        self.ended = False

    def push(self, token_ids: Sequence[int]) -> None:
        """More tokens; those behind the thought cost nothing."""
        for token in token_ids:
            if self.ended:
                return
            self._seen += 1
            self._text += self._spell(token)
            if self._begun or self._begins():
                self._inside()

    def _begins(self) -> bool:
        start = self._text.lstrip()
        self._begun = start.startswith(OPEN.encode())
        self.ended = not self._begun and not OPEN.encode().startswith(start)
        return self._begun

    def _inside(self) -> None:
        self.tokens = self._seen
        self.ended = CLOSE.encode() in self._text
        self._text = self._text[-len(CLOSE) + 1 :]
