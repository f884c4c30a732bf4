"""How long a target has been silent, in ticks."""

ASK_AFTER = 7
UNREACHED_AFTER = 12
SILENT_AFTER = 20
LONGEST = 60
"""Ticks: without a frame before the target is asked, without an answer of any kind, without a sign that its engine
moves, and without a frame whatever it says."""
QUIET = 40
"""Ticks for which a target is asked to be silent while nothing is expected of it; the others count from then on."""


class Silence:
    """Counts ticks without a frame, without a sign of life, and without an answer of any kind.

    Targets send a frame at least every second while something is expected of them, and otherwise when their load
    changes, or after QUIET. Ticks are counted instead of time, and each tick lets the reader run, so a gateway that was
    itself stopped does not take its own sleep for the target's silence.
    """

    def __init__(self) -> None:
        self._mute = self._lifeless = self._unreached = self._rest = 0

    def beat(self, quiet: bool = False) -> None:
        """A frame came; the next one may be late where nothing is expected."""
        self._mute = self._lifeless = self._unreached = 0
        self._rest = QUIET if quiet else 0

    def expect(self) -> None:
        """The target has something to answer: it may be quiet no longer."""
        self._rest = 0

    def answer(self, live: bool | None) -> None:
        """What the target said when asked; None when it said nothing."""
        if live is not None:
            self._unreached = 0
            self._lifeless = 0 if live else SILENT_AFTER

    def reached(self) -> None:
        """The target's process answered a new connection, which says nothing of its engine."""
        self._unreached = 0

    def tick(self) -> bool:
        """A fifth of a second passed; True when the target is silent."""
        if self._rest:
            self._rest -= 1
            return False
        self._mute += 1
        self._lifeless += 1
        self._unreached += 1
        silent = min(self._mute, self._lifeless) > SILENT_AFTER or self._mute > LONGEST
        return silent or self._unreached > UNREACHED_AFTER
