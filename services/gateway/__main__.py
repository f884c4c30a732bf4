"""`python -m services.gateway --tokenizer DIR --targets HOST:PORT,... | --watch HOST:PORT,...`: runs one gateway."""

import sys

from services.common.serving.memory import share_arenas
from services.common.serving.parent import end_with_parent
from services.common.serving.process import collect_later, leave, leave_when_asked, raise_descriptors


def main() -> int:
    """Runs until SIGTERM; returns the exit code."""
    leave_when_asked()
    collect_later()
    end_with_parent()
    raise_descriptors()
    share_arenas()
    # Imported only now: it takes seconds, in which the process may be asked to leave.
    from services.common.serving import lifecycle, settings
    from services.common.serving.server import BindError
    from services.gateway.settings import GatewaySettings

    loaded = settings.load(GatewaySettings, sys.argv[1:])
    from services.gateway.app import UNUSABLE, GatewayApp

    try:
        app = GatewayApp(loaded)
    except UNUSABLE as error:
        return _refused(error)
    try:
        return lifecycle.run("gateway", app, loaded.log_level)
    except BindError as error:
        return _refused(error)


def _refused(error: Exception) -> int:
    """Says in one line why the gateway does not run."""
    sys.stderr.write(f"gateway: {' '.join(str(error).split())}\n")
    return 1


if __name__ == "__main__":
    leave(main())
