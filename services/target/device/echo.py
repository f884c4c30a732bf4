"""What a request has written before: the token that stood behind the same tokens, to guess the next one by."""

from collections.abc import Iterator, Sequence

LONGEST = 4
"""Tokens before a place that are compared."""
MOST_PLACES = 8
"""Places of one token that are looked at, the last ones."""


class Echo:
    """Holds the tokens of one request and the last places of each; adding and asking take a bounded time."""

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        """Begins with tokens that stand before the output."""
        self._tokens: list[int] = []
        self._places: dict[int, list[int]] = {}
        self.add(tokens)

    def add(self, tokens: Sequence[int]) -> None:
        """Goes on behind more tokens."""
        for token in tokens:
            places = self._places.setdefault(token, [])
            places.append(len(self._tokens))
            del places[:-MOST_PLACES]
            self._tokens.append(token)

    def end(self) -> list[int]:
        """The last tokens, as many as are compared."""
        return self._tokens[-LONGEST:]

    def behind(self, path: Sequence[int], place: int = -1) -> Iterator[tuple[int, int]]:
        """Tokens that stood behind the end of a path, and their places: where more was the same first, then the last.

        First of all comes what stands behind the `place` that the end of the path was taken from, if it was.
        """
        tokens = self._tokens
        if 0 <= place < len(tokens) - 1:
            yield tokens[place + 1], place + 1
        places = [place for place in self._places.get(path[-1], ()) if place + 1 < len(tokens)] if path else []
        places.sort(key=lambda place: (self._same(place, path), place), reverse=True)
        for found in places:
            yield tokens[found + 1], found + 1

    def _same(self, place: int, path: Sequence[int]) -> int:
        """How many tokens up to a place are those at the end of a path."""
        most = min(LONGEST, len(path), place + 1)
        count = 1
        while count < most and self._tokens[place - count] == path[-1 - count]:
            count += 1
        return count
