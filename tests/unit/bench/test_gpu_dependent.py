"""Chains of dependent products compile for the GPU that they are measured on."""

import pytest

from services.common.kernels import nvrtc
from tests.bench.gpu.dependent import CHAINS, Chain


@pytest.mark.parametrize("chain", [CHAINS[0], *CHAINS[-6:]])
def test_a_form_compiles_and_the_compiler_orders_no_products(chain: Chain) -> None:
    try:
        nvrtc.version()
    except OSError:
        pytest.skip("no compiler")
    source = chain.source()
    report = nvrtc.report(source.text, "product", source.headers())
    assert "0 bytes spill stores" in report
    assert "C75" not in report, "it warns that products follow one another"
