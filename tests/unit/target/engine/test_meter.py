"""What the engine's metrics say of rounds of trees."""

from typing import cast

from prometheus_client import CollectorRegistry

from services.common.metrics.catalogue import TargetMetrics
from services.target.cache.blocks import BlockPool
from services.target.core.plan import Commit, Progress
from services.target.core.request import Request
from services.target.engine.ledger import TokenLedger
from services.target.engine.meter import Meter
from services.target.engine.recorder import RoundEntry
from tests.support.metrics import value_of


def test_drafts_are_counted_by_depth_and_by_their_places_in_trees() -> None:
    """Of two trees of 7 nodes; one accepts two drafts, of rows 2 and 5, the other one of row 2, a second child."""
    metrics = TargetMetrics(CollectorRegistry(), "m", "p")
    meter = Meter(metrics, TokenLedger(), BlockPool(8, 16))
    request = cast("Request", None)  # no metric of a round reads it
    first = Progress(request, 0, (1, 2, 3), None, 2, 7, 8, None, (2, 5), (2, 1))
    second = Progress(request, 0, (4, 5), None, 1, 7, 8, None, (2,), (2,))
    meter.round(RoundEntry(7, 8, 2, 5, 14, 3, 0, 100, 200, 50, nodes=True), Commit((first, second), 0))
    meter.round(RoundEntry(8, 8, 2, 2, 14, 0, 0, 100, 200, 50), Commit((), 0))
    assert value_of(metrics.spec_decode_num_draft_tokens) == 28
    assert (value_of(metrics.tree_rounds[8]), value_of(metrics.rounds[8])) == (1, 2)
    by_depth = metrics.spec_decode_num_accepted_tokens_per_pos
    assert [value_of(by_depth[depth]) for depth in range(2)] == [2, 1]
    assert [value_of(metrics.accepted_nodes[row]) for row in (2, 5)] == [2, 1]
    assert [value_of(metrics.accepted_children[child]) for child in (1, 2)] == [1, 2]
