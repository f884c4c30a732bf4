"""Algorithms of cuBLASLt that are quicker than its own choice, by GPU and version of the library (130100 is 13.1.0).

Written by `python -m tests.bench.gpu.products`. A row holds for one product: outputs and depth of a weight, and rows.
"""

from services.common.kernels.linear.allowed import Product

ALGORITHMS: dict[tuple[str, int], dict[Product, str]] = {}
