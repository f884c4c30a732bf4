"""python -m tests.bench.gpu.hybrid STAGE: hybrids of published shapes with random weights; a table and a JSON file.

`rounds` compares texts, keys and values of rounds of any kind with those of plain rounds, `times` times captured steps
against bytes, products and attention, `large` serves the shape of Qwen3.5-27B and weighs it, `products` tries cuts of
the products. The exit status is 1 when something differs. --tiny takes a shape that a CPU manages and saves nothing.
"""

from __future__ import annotations

import argparse
import sys

from tests.bench.gpu.exact.report import conclude
from tests.bench.gpu.hybrid.large import large_rows, serve
from tests.bench.gpu.hybrid.products import product_rows
from tests.bench.gpu.hybrid.rounds import round_rows
from tests.bench.gpu.hybrid.table import save
from tests.bench.gpu.hybrid.times import time_rows

RESULTS = "tests/bench/results"
STAGES = ("rounds", "times", "large", "products")


def main() -> int:
    """Runs one stage."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu.hybrid", description=__doc__)
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--save", default=None, help=f"folder of the JSON file; {RESULTS} unless --tiny")
    parser.add_argument("--exact", choices=("fallback", "strict", "off"), default="fallback", help="the check at start")
    parser.add_argument("--rows", type=int, nargs="*", default=[16], help="of products")
    parser.add_argument("--child", action="store_true", help="of large: the process that serves")
    chosen = parser.parse_args()
    folder = chosen.save if chosen.save is not None else "" if chosen.tiny else RESULTS
    name = "tiny hybrid" if chosen.tiny else "qwen3.5-4b"
    if chosen.stage == "rounds":
        return conclude("hybrid_rounds", name, round_rows(chosen.tiny, chosen.exact), folder)
    if chosen.stage == "times":
        return save("hybrid_times", name, time_rows(chosen.tiny), folder)
    if chosen.stage == "products":
        return save("hybrid_products", name, product_rows(chosen.tiny, chosen.rows), folder)
    if chosen.child:
        return serve(chosen.tiny, chosen.exact)
    return save("hybrid_large", "qwen3.5-27b", large_rows(chosen.tiny, chosen.exact), folder)


if __name__ == "__main__":
    sys.exit(main())
