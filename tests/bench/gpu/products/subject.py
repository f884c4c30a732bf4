"""One product on a GPU: its operands, the algorithms that may compute it, and whether they give torch's bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import product as combinations

import torch
from torch import Tensor

from services.common.kernels.linear.cublas import keep_order
from services.common.kernels.linear.cublaslt.algorithm import Algorithm, changed, config_of, refusal
from services.common.kernels.linear.cublaslt.binding import CublasLtError, Library
from services.common.kernels.linear.cublaslt.header import ConfigAttribute
from services.common.kernels.linear.cublaslt.problem import Candidate, Problem
from services.common.kernels.linear.ranked import Ranked
from tests.bench.gpu.products.cases import Case
from tests.bench.gpu.products.clock import Step

CYCLED_BYTES = 200 << 20
"""Weights that are multiplied by in turn: twice what an H200's second cache holds and more."""
LEAST_US, MOST_LAUNCHES = 400.0, 48
CLUSTERS = (0, 2, 3, 5, 4, 8, 6)
"""Of `cublasLtClusterShape_t`: automatic, 1x1, 2x1, 1x2, 4x1, 1x4, 2x2."""
SWIZZLES = (0, 1)
REQUESTED = 24


class Subject:
    """A product, on random numbers as large as a model's."""

    def __init__(self, library: Library, case: Case, device: str = "cuda") -> None:
        keep_order()
        self._library, self._case, self._device = library, case, device
        self._problem = Problem(library, *case.product)
        distinct = math.ceil(CYCLED_BYTES / (2 * case.outputs * case.depth))
        weights = [self._random(case.outputs, case.depth, scale=0.02) for _ in range(distinct)]
        launches = min(MOST_LAUNCHES, math.ceil(LEAST_US / case.least_us))
        self._cycle = weights * math.ceil(launches / distinct)
        self._x_TD = self._random(case.rows, case.depth)
        self._out_TF = torch.empty((case.rows, case.outputs), dtype=torch.bfloat16, device=device)
        self._operands = ((self._x_TD, weights[0]), self._cancelling())
        self._references = [_by_torch(*pair, torch.empty_like(self._out_TF)) for pair in self._operands]

    def candidates(self) -> list[Candidate]:
        """What the library proposes."""
        return self._problem.candidates(REQUESTED)

    def variants(self, algorithm: Algorithm) -> Iterator[Candidate]:
        """The same with other clusters and another order of tiles, as far as the library takes it."""
        for cluster, swizzle in combinations(CLUSTERS, SWIZZLES):
            changes = {ConfigAttribute.CLUSTER_SHAPE_ID: cluster, ConfigAttribute.CTA_SWIZZLING: swizzle}
            try:
                yield self._problem.check(changed(self._library, algorithm, changes))
            except CublasLtError:
                continue

    def wrong(self, candidate: Candidate) -> str:
        """Why an algorithm cannot take torch's place; empty where it gives the same bits on both pairs of operands."""
        if why := refusal(self._library, *candidate):
            return why
        ranked = Ranked(self._problem, candidate.algorithm.algo)
        for name, pair, reference in zip(("random", "cancelling"), self._operands, self._references, strict=True):
            try:
                ranked.multiply(*pair, self._out_TF.fill_(math.nan))
            except CublasLtError:
                return "launch"
            if not same_bits(self._out_TF, reference):
                return name
        return ""

    def step(self, algorithm: Algorithm | None) -> Step:
        """Products with all weights in turn, by an algorithm, or as torch computes them."""
        x_TD, out_TF = self._x_TD, self._out_TF
        if algorithm is None:
            return lambda: _each(self._cycle, lambda weight_FD: _by_torch(x_TD, weight_FD, out_TF))
        ranked = Ranked(self._problem, algorithm.algo)
        return lambda: _each(self._cycle, lambda weight_FD: ranked.multiply(x_TD, weight_FD, out_TF))

    @property
    def launches(self) -> int:
        """Products of a step."""
        return len(self._cycle)

    def described(self, algorithm: Algorithm) -> dict[str, int]:
        """Its options by name."""
        return {attribute.name.lower(): value for attribute, value in config_of(self._library, algorithm).items()}

    def _cancelling(self) -> tuple[Tensor, Tensor]:
        """Operands whose second half takes away what the first has added, so that what is left are errors of rounding.

        They follow the order of the sum alone; of sums that stay, rounding to bfloat16 hides nearly all of them.
        """
        half = self._case.depth // 2
        x_TD = self._random(self._case.rows, half)
        weight_FD = self._random(self._case.outputs, half, scale=0.02)
        return torch.cat((x_TD, -x_TD), 1), torch.cat((weight_FD, weight_FD), 1)

    def _random(self, rows: int, columns: int, scale: float = 1.0) -> Tensor:
        return torch.randn((rows, columns), dtype=torch.bfloat16, device=self._device).mul_(scale)


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Whether all numbers are the same, the sign of zero included."""
    return torch.equal(left.view(torch.int16), right.view(torch.int16))


def _by_torch(x_TD: Tensor, weight_FD: Tensor, out_TF: Tensor) -> Tensor:
    """As a product without a row in the table is computed; not by the project's function, which reads the table."""
    return torch.mm(x_TD, weight_FD.t(), out=out_TF)


def _each(weights: Iterable[Tensor], run: Callable[[Tensor], Tensor]) -> None:
    for weight_FD in weights:
        run(weight_FD)
