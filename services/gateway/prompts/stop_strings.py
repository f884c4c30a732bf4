"""Cuts text at stop strings, wherever the pieces of it happen to be split.

The match with the earliest end counts, and of those the longest, as if text came by single characters. So the cut does
not depend on how many tokens a round commits. The automaton is Aho and Corasick's (1975): one step a character,
whatever the number of strings.
"""

from collections import deque
from collections.abc import Sequence


class StopStrings:
    """The automaton of one request's stop strings; immutable after construction.

    Node 0 is the root. `hold[node]` counts the trailing characters that may still become a stop string.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        """Builds the automaton from non-empty strings."""
        self._next: list[dict[str, int]] = [{}]
        self._fail: list[int] = [0]
        self._match: list[int] = [0]
        self.hold: list[int] = [0]
        for string in strings:
            self._insert(string)
        self._link()

    def _insert(self, string: str) -> None:
        node = 0
        for depth, character in enumerate(string, start=1):
            if character not in self._next[node]:
                self._next[node][character] = len(self._next)
                self._next.append({})
                self._fail.append(0)
                self._match.append(0)
                self.hold.append(depth)
            node = self._next[node][character]
        self._match[node] = len(string)

    def _link(self) -> None:
        queue = deque(self._next[0].values())
        while queue:
            node = queue.popleft()
            for character, child in self._next[node].items():
                self._fail[child] = self.step(self._fail[node], character)
                queue.append(child)
            self._match[node] = self._match[node] or self._match[self._fail[node]]
            if not self._next[node]:
                self.hold[node] = self.hold[self._fail[node]]

    def step(self, node: int, character: str) -> int:
        """The node after one more character."""
        while node and character not in self._next[node]:
            node = self._fail[node]
        return self._next[node].get(character, 0)

    def match(self, node: int) -> int:
        """Length of the longest stop string that ends here; 0 when none does."""
        return self._match[node]


class StopCutter:
    """Feeds text through the automaton and holds back what may become a stop string; `matched` is the one found."""

    def __init__(self, stops: StopStrings, shows: bool = False) -> None:
        """Starts with no text; with `shows` a stop string that is found belongs to it."""
        self._shows = shows
        self._stops = stops
        self._node = 0
        self._held = ""
        self.matched = ""

    def push(self, text: str, armed: bool = True) -> tuple[str, bool]:
        """Adds text and returns the text that became final and whether a stop string ended in it.

        Args:
            text: what one token added; may be empty.
            armed: matches that end in this text count.
        """
        pending = self._held + text
        for index, character in enumerate(text, start=len(self._held) + 1):
            self._node = self._stops.step(self._node, character)
            length = self._stops.match(self._node)
            if length and armed:
                self._held, self.matched = "", pending[index - length : index]
                return pending[: index if self._shows else index - length], True
        keep = len(pending) - self._stops.hold[self._node]
        self._held = pending[keep:]
        return pending[:keep], False

    def finish(self) -> str:
        """The text still held back; the end of the output shows that no stop string follows."""
        held, self._held = self._held, ""
        return held
