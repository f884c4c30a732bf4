"""paceline key: makes an API key, and its entry for the file of tenants."""

from collections.abc import Sequence

from paceline import bundle


def run(argv: Sequence[str]) -> int:
    """Becomes the gateway's own program, whose file it is."""
    bundle.become("services.gateway.make_key", argv)
