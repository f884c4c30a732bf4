"""python -m deploy.cluster: Ray, the controller and its pairs, until SIGTERM."""

import dataclasses
import logging
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

from deploy.cluster import derived, environment, output, sockets
from deploy.cluster.mps import MpsError
from deploy.cluster.node import AUTO
from deploy.cluster.settings import ClusterSettings
from services.common.request.errors import PacelineError
from services.common.serving import lifecycle, settings
from services.common.serving.parent import end_with_parent
from services.common.serving.process import adopt_orphans, end_descendants, leave_now, leave_when_asked
from services.common.serving.server import BindError

logger = logging.getLogger(__name__)


def main() -> int:
    """Runs the controller; returns its exit code."""
    leave_when_asked()
    end_with_parent()
    adopt_orphans()
    chosen = settings.load(ClusterSettings, sys.argv[1:], check=derived.check)
    # Ours to remove; a folder that was given is its owner's.
    folder = "" if chosen.run_dir else tempfile.mkdtemp(prefix="paceline-", dir=sockets.base())
    chosen = dataclasses.replace(chosen, run_dir=chosen.run_dir or folder)
    tidy = partial(shutil.rmtree, folder, ignore_errors=True)
    leave_when_asked(tidy)
    try:
        return run(chosen)
    finally:
        tidy()


def run(chosen: ClusterSettings) -> int:
    """Runs the controller with a folder that may have to be made; returns its exit code."""
    run_dir = Path(chosen.run_dir)
    run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    environment.prepare(run_dir, alone=not chosen.ray_address and chosen.host != AUTO)
    # Imported only now: ray reads the environment when it is imported.
    from deploy.cluster.app import ClusterApp
    from deploy.cluster.runtime import RayStartError

    # Ray's own hook tells its store of an exception, and waits for ever when that is gone.
    sys.excepthook = sys.__excepthook__
    stderr = sys.stderr
    printed = [output.Printed(stream, "cluster") for stream in (sys.stdout, sys.stderr)]
    sys.stdout, sys.stderr = printed
    try:
        return lifecycle.run("cluster", ClusterApp(chosen))
    except (MpsError, BindError, PacelineError, RayStartError) as error:
        print(f"cluster: {error}", file=stderr, flush=True)
        return 1
    except Exception as error:
        # Once, and whole: what prints a traceback by itself writes it in hundreds of pieces.
        logger.critical("the controller ended: %s", error or repr(error), exc_info=error)
        return 1
    finally:
        # A start of Ray that was broken off leaves processes, and so does a raylet that was killed.
        end_descendants()
        for stream in printed:
            stream.close()


if __name__ == "__main__":
    # Ray's own hook would wait for a raylet that may be gone.
    leave_now(main())
