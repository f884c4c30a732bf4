"""python -m deploy.cluster.leave RUN_DIR SECONDS: drains what this node serves; for the preStop hook of a Ray pod."""

import asyncio
import sys
from pathlib import Path

from deploy.cluster import node


def main() -> int:
    """0 when all had finished in time."""
    run_dir, seconds = sys.argv[1:]
    return 0 if asyncio.run(node.leave(Path(run_dir), float(seconds))) else 1


if __name__ == "__main__":
    sys.exit(main())
