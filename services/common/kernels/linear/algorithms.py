"""Algorithms of cuBLASLt that are quicker than its own choice, by GPU and version of the library (130100 is 13.1.0).

`python -m tests.bench.gpu.products` writes them (`tables/`). One holds for exactly one product.
"""

from services.common.kernels.linear.allowed import Product
from services.common.kernels.tables import Table, tables

Algorithms = dict[tuple[str, int], dict[Product, str]]


def algorithms_of(found: dict[str, Table]) -> Algorithms:
    """Return the algorithms of all tables."""
    algorithms: Algorithms = {}
    for table in found.values():
        for entry in table.entries:
            if entry.engine == "cublaslt":
                of_version = algorithms.setdefault((table.gpu, entry.version), {})
                of_version[entry.lines, entry.depth, entry.rows] = str(entry.cut)
    return algorithms


ALGORITHMS = algorithms_of(dict(tables()))
