"""A pair whose drafts are trees on one GPU: texts of plain decoding, and more tokens a round than by chains."""

from __future__ import annotations

import pytest

from tests.bench.gpu.nodes import arguments, served
from tests.kernels.gpu.devices import DEVICE, INTERPRETED

pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs a GPU")


def test_trees_say_what_plain_decoding_says_and_are_worth_more_than_chains() -> None:
    asked = ["--device", DEVICE, "--rows", "8", "--streams", "1", "8", "32", "--tokens", "96", "--fixed"]
    lines = list(served("embedded", arguments(asked)))
    assert len(lines) == 6
    assert [line.differ for line in lines] == [0] * len(lines)
    assert [line.captured for line in lines] == [0] * len(lines)
    assert all(line.tau_nodes > 1.05 * line.tau_chain for line in lines)
