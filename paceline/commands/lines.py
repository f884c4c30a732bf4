"""Messages as people type and paste them, with a history that outlives the program."""

import json
import os
import sys
from pathlib import Path
from types import ModuleType

from paceline.commands.terminal import typed_within

PASTE_S = 0.05
"""Lines that follow one another so fast were not typed."""
KEPT = 1000
"""Messages of the history."""


def history_file() -> Path:
    """Where the history lies, by the XDG directories."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "paceline" / "chat_history"


class Lines:
    """Reads messages from a terminal, or lines from anything else."""

    def __init__(self, history: Path | None = None) -> None:
        """`history` is the file that keeps what is typed at a terminal; None keeps nothing."""
        self._terminal = sys.stdin.isatty() and sys.stdout.isatty()
        self._editor = _editor() if self._terminal else None
        self._history = history
        if self._editor is not None and history is not None:
            for message in _kept(history):
                self._editor.add_history(message)

    def read(self) -> str:
        """The next message; several lines that were pasted are one.

        Raises:
            EOFError: there is none.
        """
        message = input("> " if sys.stdin.isatty() else "")
        # Where the editor knows pastes they come whole; else, and behind an answer, line by line.
        while self._terminal and typed_within(PASTE_S):
            try:
                message += "\n" + input()
            except EOFError:
                break
        return message

    def remember(self, message: str) -> None:
        """Adds a message to the history of a terminal."""
        if self._editor is None:
            return
        self._editor.add_history(message)
        if self._history is not None:
            try:
                self._history.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
                with os.fdopen(os.open(self._history, flags, 0o600), "w", encoding="utf-8") as file:
                    file.write(json.dumps(message) + "\n")
            except OSError:
                self._history = None  # A folder that cannot be written keeps nobody from talking.


def _editor() -> ModuleType | None:
    """Arrow keys edit the line and bring earlier ones back, where this Python has the library."""
    try:
        import readline
    except ImportError:
        return None
    readline.parse_and_bind("set enable-bracketed-paste on")
    readline.set_auto_history(False)
    return readline


def _kept(path: Path) -> list[str]:
    """The messages of a history, the oldest first; a file that grew too long is cut."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        if len(lines) > 2 * KEPT:
            path.write_text("\n".join(lines[-KEPT:]) + "\n", encoding="utf-8")
        found = [json.loads(line) for line in lines[-KEPT:]]
    except (OSError, ValueError):
        return []
    return [one for one in found if isinstance(one, str)]
