"""Values of the command's flags: what has no meaning is told before anything is loaded."""

import argparse
import math
from collections.abc import Callable
from zipfile import is_zipfile

import torch

Number = Callable[[str], float]


def above_0(told: str, least: int = 1, most: int = 0) -> int:
    """Read a count; 0 is no bound."""
    if (value := int(told)) < least:
        raise argparse.ArgumentTypeError(f"must be at least {least}, is {value}")
    if 0 < most < value:
        raise argparse.ArgumentTypeError(f"must be at most {most}, is {value}: what is larger is not served")
    return value


def block(told: str) -> int:
    """Read a size: an anchor and a draft are the least."""
    return above_0(told, 2, 1 << 10)


def rank(told: str) -> int:
    """Read how many numbers a token has."""
    return above_0(told, 1, 1 << 14)


def blocks(told: str) -> tuple[tuple[int, int], ...]:
    """Read sizes of blocks and how many a row has of each."""
    pairs = [part.split(":") for part in told.split(",")]
    if any(len(pair) != 2 or not all(side.isdecimal() for side in pair) for pair in pairs):
        raise argparse.ArgumentTypeError(f"must be SIZE:COUNT,..., as in 8:2,4:2, is {told!r}")
    return tuple((block(size), above_0(count)) for size, count in pairs)


def number(least: float = 0.0, most: float = math.inf) -> Number:
    """Return what reads a number within bounds."""

    def read(told: str) -> float:
        value = float(told)
        if not (math.isfinite(value) and least <= value <= most):
            raise argparse.ArgumentTypeError(f"must be a number from {least:g} to {most:g}, is {told}")
        return value

    return read


def device(told: str) -> str:
    """Read a name of a device."""
    if told.partition(":")[0] not in ("cpu", "cuda"):
        raise argparse.ArgumentTypeError(f"must be cpu or cuda, is {told!r}")
    return told


def check(options: argparse.Namespace) -> None:
    """Refuse a device that is not here, and files that the run could not write or read in the end.

    Raises:
        ValueError: names the flag.
    """
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"--device {options.device}: torch finds no GPU here")
    if options.only_text and options.corpus is None:
        raise ValueError("--only-text keeps the text in the file of --corpus: name one")
    if options.corpus is not None and (options.corpus.is_dir() or not options.corpus.absolute().parent.is_dir()):
        raise ValueError(f"--corpus {options.corpus}: is no file in a folder that is there")
    if options.corpus is not None and options.corpus.exists() and not is_zipfile(options.corpus):
        raise ValueError(f"--corpus {options.corpus}: is no text that a run kept: remove it, or name another")
    if any(one.exists() and not one.is_dir() for one in (options.out, *options.out.parents)):
        raise ValueError(f"--out {options.out}: is no folder, nor in one")
