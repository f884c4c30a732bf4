"""python -m tests.bench.gpu.products: ranks cuBLASLt's algorithms, writes a JSON file and the tables.

Hot times are taken under load, cold ones behind a pause; an algorithm enters the table when it gives torch's bits, is
quicker hot by 2 %, and not slower cold. It ends in time, and names the products that it did not reach.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from services.common.device.device import sound
from services.common.kernels.linear.algorithms import ALGORITHMS
from services.common.kernels.linear.cublaslt.binding import Library, loaded_library
from services.common.kernels.tables import FOLDER
from tests.bench.gpu.products.cases import Case, cases
from tests.bench.gpu.products.clock import GpuClock
from tests.bench.gpu.products.contest import LEAST_GAIN, Contest
from tests.bench.gpu.products.subject import Subject
from tests.bench.gpu.products.table_file import RESULTS, merged, ranked_before, write
from tests.bench.gpu.race.meter import Meter, beside
from tests.bench.gpu.results import circumstances, short_name
from tests.bench.gpu.shapes import SHAPES

Row = dict[str, Any]


def main() -> int:
    """Ranks what there is time for."""
    start = time.monotonic()
    chosen = _arguments()
    library = loaded_library()
    if library is None:
        print("torch has loaded no cuBLASLt: this needs a GPU", file=sys.stderr)
        return 2
    every = _chosen(chosen, library.version)
    with torch.inference_mode(), Meter() as meter:
        rows = _ranked(every, library, start + chosen.seconds, meter, _Files(chosen, library))
    left = every[len(rows) :]
    if left:
        print("no time for " + ", ".join(f"{case.name} x {case.rows}" for case in left))
    failed = [row for row in rows if "error" in row]
    entered = [row for row in rows if row.get("enters")]
    print(f"{len(rows)} ranked, {len(entered)} gain {LEAST_GAIN} or more, {len(failed)} failed")
    print(f"{time.monotonic() - start:.0f} s, cuBLASLt {library.version}, torch {torch.__version__}")
    return 1 if failed or not rows else 0


def _chosen(chosen: argparse.Namespace, version: int) -> list[Case]:
    known = ranked_before(RESULTS, torch.cuda.get_device_name(), version) if chosen.new else ()
    named = (case for case in cases(SHAPES["qwen3-4b"]) if chosen.only in case.name)
    return [case for case in named if case.product not in known and case.rows in (chosen.rows or [case.rows])]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu.products", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", help="by default all that targets capture")
    parser.add_argument("--only", default="", help="what the name of a weight must contain")
    parser.add_argument("--new", action="store_true", help="only what no saved file has for this GPU and library")
    parser.add_argument("--seconds", type=float, default=100.0, help="no product is begun later")
    parser.add_argument("--save", type=Path, default=RESULTS, help="folder of the JSON file")
    parser.add_argument("--tables", type=Path, default=FOLDER, help="folder of the tables")
    return parser.parse_args()


class _Files:
    """What is kept after each product, since a GPU that fails takes the process with it."""

    def __init__(self, chosen: argparse.Namespace, library: Library) -> None:
        self._gpu, self._version = torch.cuda.get_device_name(), library.version
        document = {"bench": "products", **circumstances("qwen3-4b", "tests.bench.gpu.products")}
        self._document = document | {"cublaslt": library.version}
        self._json = chosen.save / f"gpu_{short_name(self._gpu)}_products_{time.strftime('%Y-%m-%d_%H%M')}.json"
        self._tables = chosen.tables
        self._json.parent.mkdir(parents=True, exist_ok=True)

    def keep(self, rows: Sequence[Row]) -> None:
        """Writes both."""
        self._json.write_text(json.dumps(self._document | {"rows": list(rows)}, indent=1) + "\n")
        write(merged(ALGORITHMS, self._gpu, self._version, rows), self._tables)


def _ranked(every: Sequence[Case], library: Library, end: float, meter: Meter, files: _Files) -> list[Row]:
    clock, rows = GpuClock(), []
    print(
        f"{'product':<11} {'rows':>5} {'torch':>9} {'best':>9} {'gain':>6} {'cold':>6}  exact/dropped  MHz  W  options"
    )
    for case in every:
        if time.monotonic() > end:
            break
        begin = time.monotonic()
        row: Row = {"name": case.name, "outputs": case.outputs, "depth": case.depth, "rows": case.rows}
        try:
            row |= Contest(Subject(library, case), clock).row()
        except RuntimeError as error:
            row["error"] = str(error).splitlines()[0]
        now = time.monotonic()
        power = beside(meter.samples, [(begin, now)])
        row |= {"clock_mhz": power.clock_mhz, "watts": power.watts, "seconds": round(now - begin, 2)}
        rows.append(row)
        files.keep(rows)
        print(_line(row), flush=True)
        if "error" in row and not sound(torch.device("cuda")):
            print("the GPU does not work any more in this process")
            break
    return rows


def _line(row: Row) -> str:
    name = f"{row['name']:<11} {row['rows']:>5}"
    if "error" in row:
        return f"{name} {row['error']}"
    cold = row["torch_cold_us"] / row["best_cold_us"]
    times = f"{row['torch_us']:>9.2f} {row['best_us']:>9.2f} {row['gain']:>6.3f} {cold:>6.3f}"
    dropped = " ".join(f"{why} {count}" for why, count in row["dropped"].items()) or "0"
    options = "-".join(map(str, row.get("options", {}).values())) or "torch"
    entered = "*" if row.get("enters") else " "
    return f"{name} {times} {entered} {row['exact']:>3}/{dropped}  {row['clock_mhz']} {row['watts']}  {options}"


if __name__ == "__main__":
    sys.exit(main())
