"""Text for a terminal."""

KEPT = frozenset("\n\t")


def printable(text: str) -> str:
    """Text in which no character steers the terminal: what a model writes must not."""
    return "".join(one if one in KEPT or one.isprintable() else "�" for one in text)
