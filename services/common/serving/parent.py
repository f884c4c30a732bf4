"""A service that another process of ours started ends soon after that one, however it ended."""

import os
import signal
import threading
import time

from services.common.serving.process import Watched, end_descendants, leave_now

PARENT = "PACELINE_PARENT"
"""Variable with the id of the process that a service must not outlive."""
GRACE_S = 10.0
"""Seconds that a service has to end in good order once its parent is gone."""


def end_with_parent() -> None:
    """Has this process end by SIGTERM when the one that `PACELINE_PARENT` names is gone; does nothing without it.

    The kernel's own signal to children is bound to the thread that started them, which may end early. The variable is
    taken out of the environment, because children of this process have another parent.
    """
    number = os.environ.pop(PARENT, "")
    if not number.isdecimal():
        return
    try:
        parent = Watched(int(number))
    except ProcessLookupError:
        leave_now(0)  # It ended while this one began.
    except OSError:
        return  # No descriptor is left, or the kernel has no pidfd: the service itself can do without.
    threading.Thread(target=_end_after, args=(parent,), name="parent", daemon=True).start()


def _end_after(parent: Watched) -> None:
    parent.wait(None)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    end_descendants()
    os._exit(1)
