"""A command line whose refusals are one line, with the flag that is most alike."""

import argparse
import difflib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

ELSEWHERE = {
    "--api-key": "put the key into PACELINE_API_KEY, or into a file for --key-file",
    "--base-url": "--address takes HOST:PORT of the gateway's gRPC listener",
    "--url": "--address takes HOST:PORT of the gateway's gRPC listener",
    "--host": "--address takes HOST:PORT of the gateway's gRPC listener",
    "--port": "--address takes HOST:PORT of the gateway's gRPC listener",
}
"""What stands for flags of other programs."""
SAID = (
    (re.compile(r"^argument (\S+): expected one argument$"), r"\1: needs a value"),
    (re.compile(r"^argument (\S+): "), r"\1: "),
)
"""What argparse says, and what a person reads."""


def whole(least: int = 0) -> Callable[[str], int]:
    """The type of a flag that takes whole numbers of at least so much."""

    def read(text: str) -> int:
        words = f"must be a whole number from {least} on, not {text!r}"
        if not re.fullmatch(r"[+-]?[0-9]{1,20}", text) or int(text) < least:
            raise argparse.ArgumentTypeError(words)
        return int(text)

    return read


def number(text: str) -> float:
    """The type of a flag that takes any finite number.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise argparse.ArgumentTypeError(f"must be a number, not {text!r}")
    return found


def seconds(text: str) -> float:
    """The type of a flag that takes a time between two looks.

    Raises:
        argparse.ArgumentTypeError: it is no such time.
    """
    found = number(text)
    if not 0.1 <= found <= 3600.0:
        raise argparse.ArgumentTypeError(f"must be 0.1 to 3600 seconds, not {text!r}")
    return found


def nearest(word: str, known: Iterable[str]) -> str:
    """The one of the known words that is meant, as is likely; empty where none is: hyphens alone make none alike."""
    by_name = {each.lstrip("-"): each for each in sorted(known, reverse=True)}
    asked = word.lstrip("-").lower()
    begun = [name for name in by_name if len(asked) > 1 and name.startswith(asked)]
    near = begun if len(begun) == 1 else difflib.get_close_matches(asked, by_name, n=1)
    return by_name[near[0]] if near else ""


class Parser(argparse.ArgumentParser):
    """Ends with code 2 and one line for what it does not take."""

    def error(self, message: str) -> NoReturn:
        """Ends this process; --help tells the usage."""
        for said, words in SAID:
            message = said.sub(words, message)
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
        near = nearest(name, self._option_string_actions)
        return f"{name}: there is no such flag; {f'did you mean {near}?' if near else 'see --help'}"
