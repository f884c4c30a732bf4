"""python -m deploy.cluster.leave RUN_DIR SECONDS: drains what this node serves; for the preStop hook of a Ray pod."""

import argparse
import asyncio
import sys
from pathlib import Path

from deploy.cluster import node


def main() -> int:
    """0 when all had finished in time."""
    parser = argparse.ArgumentParser(prog="python -m deploy.cluster.leave", description=__doc__)
    parser.add_argument("run_dir", type=Path, help="run folder of the node's services; needed")
    parser.add_argument("seconds", type=float, help="longest time that running requests have; needed")
    asked = parser.parse_args()
    return 0 if asyncio.run(node.leave(asked.run_dir, asked.seconds)) else 1


if __name__ == "__main__":
    sys.exit(main())
