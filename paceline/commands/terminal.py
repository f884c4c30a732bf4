"""Text for a terminal, and what is typed there."""

import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager

KEPT = frozenset("\n\t")


def printable(text: str) -> str:
    """Text in which no character steers the terminal: what a model writes must not."""
    return "".join(one if one in KEPT or one.isprintable() else "�" for one in text)


@contextmanager
def unechoed(by_key: bool = False) -> Iterator[None]:
    """Meanwhile typed keys are not shown, and wait for who reads next; `by_key` makes each readable at once.

    Ctrl-C works as ever. Does nothing where the input is no terminal.
    """
    try:
        import termios

        before = termios.tcgetattr(sys.stdin)
    except (ImportError, OSError, ValueError, termios.error):
        yield
        return
    hidden = [*before]
    hidden[3] &= ~(termios.ECHO | termios.ICANON if by_key else termios.ECHO)
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, hidden)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def typed_within(seconds: float) -> bool:
    """Whether there is something to read from the input, now or in so many seconds."""
    return bool(select.select([sys.stdin], [], [], seconds)[0])
