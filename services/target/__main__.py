"""Runs a target by hand: ``python -m services.target --model DIR --drafter-model DIR --drafter-address ADDRESS``."""

import sys

from services.common.serving.parent import end_with_parent
from services.common.serving.process import collect_later, leave, leave_when_asked


def main() -> int:
    """Runs until SIGTERM; returns the exit code."""
    leave_when_asked()
    collect_later()
    end_with_parent()
    # Imported only now: it takes seconds, in which the process may be asked to leave.
    from services.common.serving import lifecycle, settings
    from services.target.settings import TargetSettings

    loaded = settings.load(TargetSettings, sys.argv[1:])
    from services.target.app import TargetApp

    return lifecycle.run("target", TargetApp(loaded), loaded.log_level, loaded.pair_id)


if __name__ == "__main__":
    leave(main())
