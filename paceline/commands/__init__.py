"""The command `paceline`: one module for each of its commands, imported when it is asked for."""

import difflib
import sys
from collections.abc import Sequence
from importlib import import_module

from paceline import __version__, bundle
from paceline.errors import NoGatewayError, PacelineError

COMMANDS = {
    "serve": "serve a model on this machine until Ctrl-C",
    "chat": "talk to a served model",
    "generate": "stream one completion",
    "status": "show what the pairs do, live",
    "bench": "measure times to first token, between tokens, and tokens per second",
    "key": "make an API key, and its entry for the tenants file",
    "doctor": "say what this machine can run, and what is missing",
    "completion": "print a script for bash, zsh or fish that completes commands and flags",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code: 1 when it failed, 2 when it was asked for something else."""
    words = [*(sys.argv[1:] if argv is None else argv)]
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    name = words[0] if words else "--help"
    if name in ("-h", "--help"):
        print(usage())
        return 0
    if name in ("-V", "--version", "version"):
        print(f"paceline {__version__}")
        return 0
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        told = f"did you mean paceline {near[0]}?" if near else f"there are {', '.join(COMMANDS)}"
        print(f"paceline: no such command: {name}; {told}", file=sys.stderr)
        return 2
    try:
        code: int = import_module(f"paceline.commands.{name}").run(words[1:])
        return code
    except NoGatewayError as error:
        print(f"{error}: start one with {bundle.start()}", file=sys.stderr)
    except (PacelineError, OSError) as error:
        print(error, file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    return 1


def usage() -> str:
    """All commands, one a line."""
    lines = [f"  paceline {name:<10} {what}" for name, what in COMMANDS.items()]
    return "\n".join([*lines, "", "paceline COMMAND --help tells the flags of each."])
