"""Counters kept elsewhere appear in the metrics once, and only their growth."""

from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from services.common.device.graph import CaptureCost, Counters
from services.common.metrics.catalogue import target_metrics
from services.target.cache.blocks import BlockPool
from services.target.state_meter import StateMeter


@dataclass
class Attaching:
    attached: int = 0
    quarantined: int = 0
    lost: int = 0


@dataclass
class Handing:
    wanted: str
    mode: str


def test_growth_is_published_once() -> None:
    metrics = target_metrics(CollectorRegistry(), "m", "p")
    attaching, graphs, pool = Attaching(), [Counters(captures=4, replays=10)], BlockPool(8, 16)
    meter = StateMeter(
        metrics, lambda: graphs[0], CaptureCost(2.5, 7 << 20), pool, attaching, Handing("flags", "flags_mps")
    )
    meter.publish()
    meter.publish()
    assert metrics["graph_captures"].value() == 4
    assert metrics["graph_replays"].value() == 10
    assert metrics["graph_capture_seconds"].value() == 2.5
    assert metrics["graph_held_bytes"].value() == 7 << 20
    assert metrics["handoff_mode"].value("flags_mps") == 1
    assert metrics["handoff_wanted"].value("flags") == 1
    graphs[0] = Counters(captures=4, replays=13, recaptures=1, reallocations=2)
    attaching.attached, attaching.quarantined, attaching.lost = 3, 1, 1
    pool.evictions = 5
    meter.publish()
    names = ("graph_replays", "graph_recaptures", "arena_reallocations", "drafter_attaches", "prefix_cache_evictions")
    assert [metrics[name].value() for name in names] == [13, 1, 2, 3, 5]
    assert [metrics["drafter_quarantines"].value(reason) for reason in ("late", "lost")] == [1, 1]


def test_without_a_drafter_nothing_is_attached() -> None:
    metrics = target_metrics(CollectorRegistry(), "m", "p")
    StateMeter(metrics, Counters, CaptureCost(), BlockPool(8, 16), None, Handing("host", "host")).publish()
    assert metrics["drafter_attaches"].value() == 0


def test_a_hand_off_that_falls_back_is_seen() -> None:
    metrics, handing = target_metrics(CollectorRegistry(), "m", "p"), Handing("socket", "socket")
    meter = StateMeter(metrics, Counters, CaptureCost(), BlockPool(8, 16), None, handing)
    meter.publish()
    handing.mode = "host"
    meter.publish()
    assert [metrics["handoff_mode"].value(mode) for mode in ("socket", "host")] == [0, 1]
    assert metrics["handoff_wanted"].value("socket") == 1
