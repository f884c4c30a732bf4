"""python -m deploy.cluster: Ray, the controller and its pairs, until SIGTERM."""

import sys

from deploy.cluster.app import ClusterApp
from deploy.cluster.settings import ClusterSettings
from services.common import lifecycle, settings


def main() -> int:
    """Runs the controller; returns its exit code."""
    chosen = settings.load(ClusterSettings, sys.argv[1:])
    return lifecycle.run("cluster", ClusterApp(chosen))


if __name__ == "__main__":
    sys.exit(main())
