"""What the check found, and the file that keeps it for the next start of the same numerics."""

import json
import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from services.common.kernels.dispatch import compiled_kernels
from services.common.kernels.linear.allowed import Product

_LOG = logging.getLogger(__name__)
_FOLDER = "paceline-exact"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How many shapes were compared, and the names of those that differed.

    Those `mended` are equal since the library is kept from the products `refused`; those `differing` are not.
    """

    shapes: int
    mended: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()
    refused: tuple[Product, ...] = ()

    @property
    def named(self) -> str:
        """Every shape that differed, for people."""
        return ", ".join((*self.mended, *self.differing))


class VerdictFile:
    """A file in the folder of Triton's compiled kernels, named by the key of all that decides a verdict."""

    def __init__(self, key: str, folder: Path | None = None) -> None:
        """`folder` is Triton's, by default the one that it uses."""
        self.path = kept_file(key, folder)

    def read(self) -> Verdict | None:
        """Return what was found before; None where there is nothing, or nothing that can be read."""
        try:
            kept = json.loads(self.path.read_text())
            return Verdict(
                shapes=int(kept["shapes"]),
                mended=tuple(map(str, kept["mended"])),
                differing=tuple(map(str, kept["differing"])),
                refused=tuple((int(outputs), int(depth), int(rows)) for outputs, depth, rows in kept["refused"]),
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            _LOG.warning("the kept verdict %s cannot be read: %s", self.path, error)
            return None

    def write(self, verdict: Verdict) -> None:
        """Keep a verdict; where that cannot be, the next start compares again."""
        write_whole(self.path, json.dumps(asdict(verdict)))


def kept_file(name: str, folder: Path | None = None) -> Path:
    """Return a file for later starts in a folder of compiled kernels, by default the one that Triton uses."""
    return (folder or compiled_kernels()) / _FOLDER / f"{name}.json"


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all; what cannot be written is told in the log."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_text(text)
        fresh.replace(path)
    except OSError as error:
        _LOG.warning("%s cannot be kept: %s", path, error)
