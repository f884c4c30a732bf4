"""python -m tests.bench.gpu.clusters: 128 rows by the kernel in clusters and by cuBLAS, in the same run on one GPU.

It compiles the kernel with nvcc, compares every tiling's bits with cuBLAS's, times what is equal, and prints the gate
last. A tiling that fails or hangs is named, and the others go on.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.gpu.clusters.build import built
from tests.bench.gpu.clusters.overseer import Overseer
from tests.bench.gpu.clusters.report import gate, rows_of, table
from tests.bench.gpu.clusters.tiling import TILINGS
from tests.bench.gpu.results import circumstances, short_name


def main() -> int:
    """Returns 0 where every shape has a tiling with cuBLAS's bits that was timed."""
    chosen, begin = _arguments(), time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        said = built([tiling for shape in chosen.shapes for tiling in TILINGS[shape]], folder)
        print(f"{len(said)} kernels built in {time.monotonic() - begin:.0f} s", flush=True)
        failed = {tiling.name: words for tiling, words in said.items() if words.startswith("error")}
        for tiling, words in failed.items():
            print(f"{tiling} {words}", file=sys.stderr)
        overseer = Overseer(folder, begin + chosen.seconds)
        overseer.run(chosen.shapes, [f"{shape}/{tiling}" for shape in chosen.shapes for tiling in failed])
    rows = rows_of(chosen.shapes, overseer.candidates, overseer.times)
    for row in rows:
        for one in row["tilings"]:
            one["built"] = next((words for tiling, words in said.items() if tiling.name == one["tiling"]), "")
    document = {"bench": "clusters", **circumstances("qwen3-4b", "tests.bench.gpu.clusters"), "gate": gate(rows)}
    chosen.save.mkdir(parents=True, exist_ok=True)
    gpu = short_name(str(document["device"]))
    path = chosen.save / f"gpu_{gpu}_clusters_{time.strftime('%Y-%m-%d_%H%M')}.json"
    path.write_text(json.dumps(document | {"rows": rows}, indent=1) + "\n")
    print(f"{path}, {document['device']}, {time.monotonic() - begin:.0f} s\n\n{table(rows)}")
    return 0 if all(row.get("best") for row in rows) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu.clusters", description=__doc__)
    parser.add_argument("--shapes", nargs="+", choices=list(TILINGS), default=list(TILINGS))
    parser.add_argument("--seconds", type=float, default=100.0, help="everything ends by then")
    parser.add_argument("--save", type=Path, required=True, help="folder of the JSON file")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
