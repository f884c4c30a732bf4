"""Where a target serves trees of drafts, and where it serves chains and says why."""

import logging

import pytest

from services.common.pair import attach
from services.target.build_device import Worker, build_worker
from services.target.settings import TargetSettings
from tests.lossless.pairs import made_up_pair


def built(family: str = "qwen3", with_context: bool = True, **settings: object) -> Worker:
    pair = made_up_pair(family=family)
    drafter = str(pair.drafter) if with_context else "none"
    sizes = {"slots": 1, "blocks": 8, "context_limit": 64, "adaptive": False, "drafter_address": "unix:/nowhere"}
    return build_worker(TargetSettings(model=str(pair.target), drafter_model=drafter, **sizes | settings), 0)  # type: ignore[arg-type]


def test_trees_may_have_more_nodes_than_a_block_has_rows() -> None:
    """The drafter's block has 8 rows."""
    worker = built(nodes=True, widths=(1, 8, 16))
    assert (worker.terms.widths, worker.terms.trees) == ((8,), (8, 16))
    assert attach.PARENTS in worker.arena
    worker.close()


@pytest.mark.parametrize(
    ("family", "with_context", "why"),
    [("qwen3_5", True, "the model has recurrent layers"), ("qwen3", False, "the drafter ranks no tokens")],
)
def test_where_drafts_cannot_be_trees_chains_are_served_and_a_line_says_why(
    family: str, with_context: bool, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        worker = built(family, with_context, nodes=True, widths=(1, 4))
    assert attach.PARENTS not in worker.arena
    assert (worker.terms.widths, worker.terms.trees) == ((4,), ())
    assert [getattr(record, "why", None) for record in caplog.records if "chains" in record.message] == [why]
    worker.close()


def test_chains_are_served_unless_trees_are_asked_for() -> None:
    worker = built(widths=(1, 8, 16))
    assert attach.PARENTS not in worker.arena
    assert worker.terms.widths == (8,)
    worker.close()
