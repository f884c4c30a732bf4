"""`python -m services.gateway --tokenizer DIR --targets HOST:PORT,... | --watch HOST:PORT,...`: runs one gateway."""

import sys

from services.common.serving.process import leave, leave_when_asked, raise_descriptors


def main() -> int:
    """Runs until SIGTERM; returns the exit code."""
    leave_when_asked()
    raise_descriptors()
    # Imported only now: it takes seconds, in which the process may be asked to leave.
    from services.common.serving import lifecycle, settings
    from services.gateway.settings import GatewaySettings

    loaded = settings.load(GatewaySettings, sys.argv[1:])
    from services.gateway.app import GatewayApp

    return lifecycle.run("gateway", GatewayApp(loaded), loaded.log_level)


if __name__ == "__main__":
    leave(main())
