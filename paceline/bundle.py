"""Finds the services' code, and starts its programs so that no other package of the same name is imported."""

import errno
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

PACKAGE = Path(__file__).resolve().parent
INSTALLED = PACKAGE / "_bundle"
"""The folder of the wheel with `services`, `deploy` and `models`, names that other packages may have too."""

GONE = "the working folder was removed: change to one that is there"


def root() -> Path:
    """The folder that is the import root of the services: the one in the wheel, else the checkout."""
    return INSTALLED if INSTALLED.is_dir() else PACKAGE.parent


def start() -> str:
    """The command that serves a model, as a user of this copy types it."""
    return "paceline serve" if INSTALLED.is_dir() else "make up"


def become(module: str, argv: Sequence[str]) -> NoReturn:
    """Replaces this process by a program of the services, which sees their folder first and not the working folder.

    Ctrl-C waits until that program has imported what it needs, and takes it (`process.take_signals`).

    Raises:
        OSError: the working folder is gone, which libraries would tell in words of their own.
    """
    try:
        os.getcwd()
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, GONE) from None
    paths = [str(root()), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    sys.stdout.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    os.execve(sys.executable, [sys.executable, "-P", "-m", module, *argv], environment)
