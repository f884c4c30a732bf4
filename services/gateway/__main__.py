"""`python -m services.gateway --tokenizer DIR --targets HOST:PORT,... | --watch HOST:PORT,...`: runs one gateway."""

import sys

from services.common import lifecycle, settings
from services.gateway.app import GatewayApp
from services.gateway.settings import GatewaySettings


def main() -> int:
    """Runs until SIGTERM; returns the exit code."""
    loaded = settings.load(GatewaySettings, sys.argv[1:])
    return lifecycle.run("gateway", GatewayApp(loaded), loaded.log_level)


if __name__ == "__main__":
    sys.exit(main())
