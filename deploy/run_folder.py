"""The folder of a run: made for it, removed with it, and by a later run where its process was killed."""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path

from deploy.cluster import mps, sockets

_PREFIX, _LOCK = "paceline-", "lock"


class RunFolder:
    """A folder for temporary files of one run, held by a lock that the kernel takes back with the process.

    Raises:
        OSError: from construction, when no folder can be made.
    """

    def __init__(self) -> None:
        """Removes first what killed runs of this user have left."""
        self._sweep()
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=sockets.base()))
        # Under its name it is always held, so that no run that begins meanwhile takes it for a dead one's.
        early = self.path / "early"
        self._lock = os.open(early, os.O_CREAT | os.O_RDWR | os.O_EXCL, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        early.rename(self.path / _LOCK)

    def remove(self) -> None:
        """Removes it, once all that runs in it has ended."""
        mps.end_below(self.path)
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1

    @staticmethod
    def _sweep() -> None:
        for lock in Path(sockets.base()).glob(f"{_PREFIX}*/{_LOCK}"):
            with contextlib.suppress(OSError):  # its run goes on, or it has just gone
                if _ours(lock.parent):
                    _remove_unheld(lock)


def _ours(folder: Path) -> bool:
    """Nobody else has made it, and it is no link to somewhere else."""
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _remove_unheld(lock: Path) -> None:
    held = os.open(lock, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mps.end_below(lock.parent)
        shutil.rmtree(lock.parent, ignore_errors=True)
    finally:
        os.close(held)
