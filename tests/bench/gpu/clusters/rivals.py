"""A product of 128 rows on a GPU: operands, whether a tiling gives the library's bits on them, and steps to time."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from services.common.kernels.linear.cublas import keep_order, library_product
from tests.bench.gpu.clusters.build import cubin_of
from tests.bench.gpu.clusters.driver import DriverError, Kernel, TensorMap
from tests.bench.gpu.clusters.tiling import ROWS, WEIGHTS, Tiling
from tests.bench.gpu.products.cases import Case
from tests.bench.gpu.products.clock import Step
from tests.bench.gpu.products.subject import CYCLED_BYTES, LEAST_US, MOST_LAUNCHES, same_bits

_SLACK = 2.0**-8
"""Relative error that one rounding to bfloat16 may leave, with as much again for the sums before it."""
_LEAST_SLACK = 2e-3


class Operands:
    """Rows, and weights that are multiplied by in turn and are more than the second cache holds."""

    def __init__(self, name: str, device: str = "cuda") -> None:
        keep_order()
        torch.manual_seed(23)
        self.outputs, self.depth = WEIGHTS[name]
        self._device = device
        distinct = max(2, math.ceil(CYCLED_BYTES / (2 * self.outputs * self.depth)))
        self.weights = [self._random(self.outputs, self.depth, 0.02) for _ in range(distinct)]
        self.x_TD = self._random(ROWS, self.depth, 1.0)
        least_us = Case(name, self.outputs, self.depth, ROWS).least_us
        launches = min(MOST_LAUNCHES, math.ceil(LEAST_US / least_us))
        self.cycle = [number % distinct for number in range(math.ceil(launches / distinct) * distinct)]
        # The second half of this one takes away what the first has added: what is left follows the order of the sum.
        half_TD, half_FD = self.x_TD[:, : self.depth // 2], self.weights[0][:, : self.depth // 2]
        self.cancelling = torch.cat((half_TD, -half_TD), 1), torch.cat((half_FD, half_FD), 1)
        self.pairs = [(self.x_TD, self.weights[0]), self.cancelling, (self.x_TD, self.weights[1])]
        self.out_TF = self.empty()
        self.by_library = [library_product(*pair) for pair in self.pairs]
        self.by_torch = [x_TD @ weight_FD.T for x_TD, weight_FD in self.pairs]
        self.wide = [x_TD.double() @ weight_FD.double().T for x_TD, weight_FD in self.pairs[:1]]

    def cublas_step(self) -> Step:
        """Products by the library, with all weights in turn; by a ranked algorithm where the table has one."""
        return lambda: _each(lambda number: library_product(self.x_TD, self.weights[number], self.out_TF), self.cycle)

    def wrong(self, results: list[Tensor]) -> str:
        """Say what is wrong with products of the pairs, and where first; empty where all have the library's bits."""
        for number, (result_TF, library_TF) in enumerate(zip(results, self.by_library, strict=True)):
            if not same_bits(result_TF, library_TF):
                return f"pair {number}: {_difference(result_TF, library_TF)}"
            if not torch.equal(result_TF, self.by_torch[number]):
                return f"pair {number}, torch's product: {_difference(result_TF, self.by_torch[number])}"
        error_TF = (results[0].double() - self.wide[0]).abs()
        if bool((error_TF > self.wide[0].abs() * _SLACK + _LEAST_SLACK).any()):
            return f"float64: off by {error_TF.max().item():.3g} of {self.wide[0].abs().max().item():.3g}"
        return ""

    def empty(self) -> Tensor:
        """Return a result that is no number yet."""
        return torch.full((ROWS, self.outputs), math.nan, dtype=torch.bfloat16, device=self._device)

    def _random(self, rows: int, columns: int, scale: float) -> Tensor:
        return torch.randn((rows, columns), dtype=torch.bfloat16, device=self._device).mul_(scale)


class Clustered:
    """A tiling's kernel, with tensor maps of all operands."""

    def __init__(self, tiling: Tiling, operands: Operands, folder: Path) -> None:
        """Raises DriverError where the GPU cannot run it."""
        self._tiling, self._operands = tiling, operands
        self._kernel = Kernel(
            cubin_of(tiling, folder), grid=tiling.grid(operands.outputs), threads=tiling.threads,
            shared_bytes=tiling.shared_bytes, cluster=tiling.cluster,
        )  # fmt: skip
        self._x_map = self._map_of_rows(operands.x_TD)
        self._weight_maps = [self._map_of_weight(weight_FD) for weight_FD in operands.weights]
        cancelling_TD, cancelling_FD = operands.cancelling
        pairs = (self._map_of_rows(cancelling_TD), self._map_of_weight(cancelling_FD))
        self._pairs = [(self._x_map, self._weight_maps[0]), pairs, (self._x_map, self._weight_maps[1])]

    def clusters_at_once(self) -> int | str:
        """How many clusters the GPU holds at a time, or why it does not tell."""
        try:
            return self._kernel.clusters_at_once()
        except DriverError as error:
            return str(error)

    def results(self, *, overlapped: bool) -> list[Tensor]:
        """Return the products of the operands' pairs, one kernel right behind the other."""
        results = [self._operands.empty() for _ in self._pairs]
        torch.cuda.synchronize()
        for (x_map, weight_map), result_TF in zip(self._pairs, results, strict=True):
            self._launch(x_map, weight_map, result_TF, overlapped)
        torch.cuda.synchronize()
        return results

    def step(self, *, overlapped: bool) -> Step:
        """Products with all weights in turn."""
        out_TF, maps = self._operands.out_TF, self._weight_maps
        return lambda: _each(
            lambda number: self._launch(self._x_map, maps[number], out_TF, overlapped), self._operands.cycle
        )

    def _launch(self, x_map: TensorMap, weight_map: TensorMap, out_TF: Tensor, overlapped: bool) -> None:
        arguments = (x_map.address, weight_map.address, out_TF.data_ptr(), self._operands.outputs, self._operands.depth)
        self._kernel.launch(arguments, torch.cuda.current_stream().cuda_stream, overlapped=overlapped)

    def _map_of_rows(self, x_TD: Tensor) -> TensorMap:
        return TensorMap(x_TD, self._tiling.rows // self._tiling.share_x)

    def _map_of_weight(self, weight_FD: Tensor) -> TensorMap:
        return TensorMap(weight_FD, self._tiling.lines)


def _difference(left: Tensor, right: Tensor) -> str:
    differ = (left.view(torch.int16) != right.view(torch.int16)).nonzero()
    if not len(differ):
        return "only the sign of zero differs"
    row, line = differ[0].tolist()
    rows, lines = differ[:, 0].unique().numel(), differ[:, 1].unique().numel()
    values = f"{left[row, line].item()} for {right[row, line].item()}"
    unwritten = int(left.isnan().sum())
    where = f"{len(differ)} of {left.numel()} differ in {rows} rows, {lines} lines, first [{row}, {line}]"
    return f"{where}: {values}; {unwritten} NaN"


def _each(run: Callable[[int], object], numbers: list[int]) -> None:
    for number in numbers:
        run(number)
