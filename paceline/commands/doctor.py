"""paceline doctor: what this machine can run."""

from collections.abc import Sequence

from paceline import bundle


def run(argv: Sequence[str]) -> int:
    """Becomes the services' own program, which knows what they need."""
    bundle.become("deploy.doctor", argv)
