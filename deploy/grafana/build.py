"""python -m deploy.grafana.build [--check]: writes the dashboards' JSON, or says that it is out of date.

Needs grafana-foundation-sdk (requirements/deploy.txt).
"""

import argparse
import importlib.util
from pathlib import Path

from deploy.grafana.boards import BOARDS
from deploy.grafana.panels import Board

FOLDER = Path(__file__).parent / "dashboards"


def main() -> int:
    """Writes, or checks, every dashboard; 1 when one is out of date, 2 where the SDK is missing."""
    parser = argparse.ArgumentParser(prog="python -m deploy.grafana.build", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say which are old")
    check = parser.parse_args().check
    if importlib.util.find_spec("grafana_foundation_sdk") is None:
        parser.error("grafana-foundation-sdk is missing: pip install --requirement requirements/deploy.txt")
    stale = [board for board in BOARDS if _write(board, check)]
    for board in stale:
        print(f"{board.uid}.json is out of date" if check else f"wrote {board.uid}.json")
    return 1 if check and stale else 0


def _write(board: Board, check: bool) -> bool:
    """True when the file differs from what the panels say; without check it is written."""
    from deploy.grafana.render import render  # here, so that --help needs no SDK

    path, text = FOLDER / f"{board.uid}.json", render(board)
    if path.exists() and path.read_text() == text:
        return False
    if not check:
        path.write_text(text)
    return True


if __name__ == "__main__":
    raise SystemExit(main())
