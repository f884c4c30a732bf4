"""Runs a drafter: `python -m services.drafter --proposer ngram --grpc unix:/path`."""

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
    from services.drafter.settings import DrafterSettings

    loaded = settings.load(DrafterSettings, sys.argv[1:])
    from services.drafter.app import DrafterApp

    return lifecycle.run("drafter", DrafterApp(loaded), loaded.log_level, loaded.pair_id)


if __name__ == "__main__":
    leave(main())
