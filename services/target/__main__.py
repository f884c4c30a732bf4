"""Runs a target by hand: ``python -m services.target --model DIR --drafter-model DIR --drafter-address ADDRESS``."""

from __future__ import annotations

import sys

from services.common import lifecycle, settings
from services.target.app import TargetApp
from services.target.settings import TargetSettings


def main() -> int:
    """Runs until SIGTERM; returns the exit code."""
    chosen = settings.load(TargetSettings, sys.argv[1:])
    return lifecycle.run("target", TargetApp(chosen), chosen.log_level)


if __name__ == "__main__":
    raise SystemExit(main())
