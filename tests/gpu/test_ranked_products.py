"""Products by algorithms of our choice: torch's bits and our own kernels', in captures, without memory or waiting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from services.common.kernels.linear import kernel, ranked
from services.common.kernels.linear.algorithms import ALGORITHMS
from services.common.kernels.linear.allowed import Product
from services.common.kernels.linear.cublaslt.algorithm import Algorithm
from services.common.kernels.linear.cublaslt.binding import Library, loaded_library
from services.common.kernels.linear.cublaslt.problem import Candidate, Problem
from tests.bench.gpu.products.cases import Case
from tests.bench.gpu.products.subject import Subject, same_bits
from tests.kernels.gpu.devices import DEVICE, INTERPRETED, randn

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")
PRODUCTS: list[Product] = [(2560, 4096, 128), (6144, 2560, 512), (2560, 9728, 256)]
OUTPUTS, DEPTH, ROWS = PRODUCTS[0]
FEW = 64


@pytest.fixture
def library() -> Iterator[Library]:
    found = loaded_library()
    assert found is not None
    ranked.ranked_products.cache_clear()
    yield found
    ranked.ranked_products.cache_clear()


def case_of(product: Product) -> Case:
    return Case("product", *product)


def exact(library: Library, product: Product) -> list[Algorithm]:
    """Proposed algorithms that give torch's bits on random and on cancelling operands."""
    subject = Subject(library, case_of(product))
    found = [(candidate, subject.wrong(candidate)) for candidate in subject.candidates()]
    print(product, library.version, {str(one.algorithm): why for one, why in found})
    return [one.algorithm for one, why in found if not why]


def operands(product: Product) -> tuple[torch.Tensor, torch.Tensor]:
    outputs, depth, rows = product
    weight = randn(outputs, depth, seed=1, dtype=torch.bfloat16).mul_(depth**-0.5)
    return randn(rows, depth, dtype=torch.bfloat16), weight


@pytest.mark.parametrize("product", PRODUCTS)
def test_some_algorithms_give_torch_s_bits_and_those_of_our_own_kernels(library: Library, product: Product) -> None:
    found = exact(library, product)
    assert found
    x, weight = operands(product)
    out = x.new_empty((product[2], product[0]))
    ranked.Ranked(Problem(library, *product), found[0].algo).multiply(x, weight, out)
    assert same_bits(out[:FEW], kernel.linear(x[:FEW], weight))


def test_every_row_of_the_table_is_used_and_gives_torch_s_bits(library: Library) -> None:
    device = torch.device(DEVICE, torch.cuda.current_device())
    rows = ALGORITHMS.get((torch.cuda.get_device_name(), library.version), {})
    print(f"{len(rows)} rows for {torch.cuda.get_device_name()} and {library.version}")
    assert set(ranked.ranked_products(device)) == set(rows)
    for product, text in rows.items():
        assert not Subject(library, case_of(product)).wrong(Candidate(Algorithm.parse(text), 0)), product


def test_every_row_of_the_table_gives_the_bits_of_our_own_kernels(library: Library) -> None:
    """On operands that cancel, so that what is left follows the order of the sum alone."""
    device = torch.device(DEVICE, torch.cuda.current_device())
    for product, one in ranked.ranked_products(device).items():
        outputs, depth, rows = product
        half_TD, half_FD = (torch.randn((n, depth // 2), dtype=torch.bfloat16, device=device) for n in (rows, outputs))
        x, weight = torch.cat((half_TD, -half_TD), 1), torch.cat((half_FD, half_FD), 1)
        out = one.multiply(x, weight, x.new_empty((rows, outputs)))
        for few in (slice(0, FEW), slice(rows - FEW, rows)):
            assert same_bits(out[few], kernel.linear(x[few], weight)), product


def test_a_captured_product_is_computed_again_on_what_x_then_holds(library: Library) -> None:
    """A capture of all threads' calls fails at once when the library allocates or waits."""
    chosen = ranked.Ranked(Problem(library, *PRODUCTS[0]), exact(library, PRODUCTS[0])[0].algo)
    x, weight = operands(PRODUCTS[0])
    out = x.new_empty((ROWS, OUTPUTS))
    chosen.multiply(x, weight, out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="global"):
        chosen.multiply(x, weight, out)
    x.copy_(x.flip(0))
    graph.replay()
    assert same_bits(out, torch.mm(x, weight.t()))
    torch.cuda.synchronize()
    free, _ = torch.cuda.mem_get_info()
    for _ in range(200):
        chosen.multiply(x, weight, out)
        graph.replay()
    torch.cuda.synchronize()
    assert torch.cuda.mem_get_info()[0] == free


def test_many_rows_go_by_the_table(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    text = str(exact(library, PRODUCTS[0])[0])
    monkeypatch.setattr(ranked, "ALGORITHMS", {(torch.cuda.get_device_name(), library.version): {PRODUCTS[0]: text}})
    launched: list[Any] = []
    launch = Problem.launch

    def told(*given: Any) -> None:
        launched.append(given)
        launch(*given)

    monkeypatch.setattr(Problem, "launch", told)
    x, weight = operands(PRODUCTS[0])
    own = kernel.linear(x, weight)
    assert len(launched) == 1
    assert same_bits(own, torch.mm(x, weight.t()))
    kernel.linear(torch.cat((x, x)), weight)
    assert len(launched) == 1, "no row for as many"
