"""python -m tests.bench.gpu.plot FILE...: draws the results of a profile beside its JSON, speed against concurrency."""

import json
import sys
from pathlib import Path

from tests.bench.load.plot import plot_curve


def main() -> int:
    """Draws every file named; 1 when matplotlib is missing."""
    for name in sys.argv[1:]:
        path = Path(name)
        rows = [
            {
                "mode": f"fixed {row['k'] + 1}" if row["mode"] == "fixed" else row["mode"],
                "concurrency": row["concurrency"],
                "tok_s": row["decode_tok_s"],
            }
            for row in json.loads(path.read_text())["rows"]
            if "mode" in row
        ]
        if not plot_curve(rows, path.with_suffix(".png")):
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
