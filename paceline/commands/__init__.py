"""The command `paceline`: one module for each of its commands, imported when it is asked for."""

import os
import select
import sys
from collections.abc import Sequence
from importlib import import_module

from paceline import __version__, bundle
from paceline.commands.parsing import nearest

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


ELSEWHERE = {
    "run": "serve",
    "start": "serve",
    "up": "serve",
    "launch": "serve",
    "api_server": "serve",
    "complete": "generate",
}
"""Words of other programs."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code: 1 when it failed, 2 when it was asked for something else."""
    try:
        _open_streams()
        code = _run([*(sys.argv[1:] if argv is None else argv)])
        sys.stdout.flush()
        return code
    except Exception as error:
        if not _expected(error):
            raise
        if isinstance(error, BrokenPipeError) and _unread():
            # The interpreter would tell so once more when it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        else:
            print(_told(error), file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    return 1


def _run(words: list[str]) -> int:
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    name = words[0] if words else "--help"
    if name in ("-h", "--help"):
        print(usage())
        return 0
    if name in ("-V", "--version", "version"):
        print(f"paceline {__version__}")
        return 0
    if name in COMMANDS:
        code: int = import_module(f"paceline.commands.{name}").run(words[1:])
        return code
    near = ELSEWHERE.get(name) or nearest(name, (*COMMANDS, "--version", "--help"))
    told = f"did you mean paceline {near}?" if near else f"there are {', '.join(COMMANDS)}"
    print(f"paceline: no such command: {name if name.strip() else repr(name)}; {told}", file=sys.stderr)
    return 2


def _open_streams() -> None:
    """Opens to nowhere what a caller has closed of input, output and errors: else a socket takes its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def _expected(error: Exception) -> bool:
    """Whether a line tells it; gRPC is imported here only where a command has failed."""
    from paceline.errors import PacelineError

    return isinstance(error, PacelineError | OSError | UnicodeDecodeError)


def _unread() -> bool:
    """Whether who read the output is gone, as `head` is after its lines; a socket may break while it reads on."""
    errors = select.poll()
    errors.register(1, 0)
    return bool(errors.poll(0))


def _told(error: Exception) -> str:
    """What went wrong, in one line and without numbers of the system's."""
    from paceline.errors import NoGatewayError

    if isinstance(error, NoGatewayError):
        return f"{error}: start one with {bundle.start()}"
    if isinstance(error, UnicodeDecodeError):
        return f"the input is not valid UTF-8, from byte {error.start} on"
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        return f"{error.filename}: {reason}" if error.filename else reason
    return str(error)


def usage() -> str:
    """All commands, one a line."""
    lines = [f"  paceline {name:<10} {what}" for name, what in COMMANDS.items()]
    return "\n".join([*lines, "", "paceline COMMAND --help tells the flags of each."])
