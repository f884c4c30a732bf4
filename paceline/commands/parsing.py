"""A command line whose refusals are one line, with the flag that is most alike."""

import argparse
import difflib
from collections.abc import Sequence
from typing import NoReturn

ELSEWHERE = {
    "--api-key": "put the key into PACELINE_API_KEY, or into a file for --key-file",
    "--base-url": "--address takes HOST:PORT of the gateway's gRPC listener",
    "--url": "--address takes HOST:PORT of the gateway's gRPC listener",
    "--host": "--address takes HOST:PORT of the gateway's gRPC listener",
    "--port": "--address takes HOST:PORT of the gateway's gRPC listener",
}
"""What stands for flags of other programs."""


class Parser(argparse.ArgumentParser):
    """Ends with code 2 and one line for what it does not take."""

    def error(self, message: str) -> NoReturn:
        """Ends this process; --help tells the usage."""
        self.exit(2, f"{self.prog}: {message}\n")

    def only(self, argv: Sequence[str] | None = None) -> argparse.Namespace:
        """The values of a command line that holds nothing else; ends this process for what is not known."""
        chosen, rest = self.parse_known_args(argv)
        if rest:
            self.error(self._unknown(rest[0]))
        return chosen

    def _unknown(self, word: str) -> str:
        name = word.partition("=")[0]
        if not name.startswith("-"):
            return f"{word!r} is one word too many; quote what belongs together"
        if name in ELSEWHERE:
            return f"{name}: there is no such flag; {ELSEWHERE[name]}"
        near = difflib.get_close_matches(name, sorted(self._option_string_actions), n=1)
        return f"{name}: there is no such flag; {f'did you mean {near[0]}?' if near else 'see --help'}"
