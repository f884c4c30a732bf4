"""Runs a drafter: `python -m services.drafter --proposer ngram --grpc unix:/path`."""

import sys

from services.common import lifecycle, settings
from services.drafter.app import DrafterApp
from services.drafter.settings import DrafterSettings


def main() -> int:
    """Runs until SIGTERM; returns the exit code."""
    loaded = settings.load(DrafterSettings, sys.argv[1:])
    return lifecycle.run("drafter", DrafterApp(loaded), loaded.log_level)


if __name__ == "__main__":
    raise SystemExit(main())
