"""Counters kept elsewhere appear in the metrics once, and only their growth."""

from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from services.common.device.graph import CaptureCost, Counters
from services.common.metrics.catalogue import TargetMetrics
from services.common.pair.handoff import HandoffMode
from services.target.cache.blocks import BlockPool
from services.target.cache.snapshots import SnapshotPool
from services.target.state_meter import StateMeter
from tests.support.metrics import value_of


@dataclass
class Attaching:
    attached: int = 0
    quarantined: int = 0
    lost: int = 0


@dataclass
class Experts:
    visits: dict[str, int] = field(default_factory=lambda: {"device": 0, "host": 0})
    read_bytes: dict[str, int] = field(default_factory=lambda: {"device": 0, "host": 0})
    exchanges: int = 0


@dataclass
class Handing:
    wanted: HandoffMode
    in_use: str


def test_growth_is_published_once() -> None:
    metrics = TargetMetrics(CollectorRegistry(), "m", "p")
    attaching, graphs, pool = Attaching(), [Counters(captures=4, replays=10)], BlockPool(8, 16)
    snapshots, handing = SnapshotPool(2, 16, size=100), Handing(HandoffMode.FLAGS, "flags_mps")
    experts = Experts()
    cost = CaptureCost(2.5, 7 << 20)
    meter = StateMeter(metrics, lambda: graphs[0], cost, pool, snapshots, attaching, handing, experts)
    meter.publish()
    meter.publish()
    assert value_of(metrics.graph_captures) == 4
    assert value_of(metrics.graph_replays) == 10
    assert value_of(metrics.graph_capture_seconds) == 2.5
    assert value_of(metrics.graph_held_bytes) == 7 << 20
    assert value_of(metrics.handoff_mode["flags_mps"]) == 1
    assert value_of(metrics.handoff_wanted["flags"]) == 1
    graphs[0] = Counters(captures=4, replays=13, recaptures=1, reallocations=2)
    attaching.attached, attaching.quarantined, attaching.lost = 3, 1, 1
    pool.evictions = 5
    experts.visits["host"], experts.read_bytes["device"], experts.exchanges = 8, 70, 2
    for name in (b"a", b"b", b"c"):
        snapshots.take(name)
    snapshots.use(b"c")
    meter.publish()
    grown = (
        metrics.graph_replays,
        metrics.graph_recaptures,
        metrics.arena_reallocations,
        metrics.drafter_attaches,
        metrics.prefix_cache_evictions,
        metrics.state_snapshot_hits,
        metrics.state_snapshot_evictions,
    )
    assert [value_of(counter) for counter in grown] == [13, 1, 2, 3, 5, 1, 1]
    told = metrics.expert_reads["host"], metrics.expert_reads["device"], metrics.expert_read_bytes["device"]
    assert [value_of(each) for each in (*told, metrics.expert_exchanges)] == [8, 0, 70, 2]
    assert (value_of(metrics.state_snapshots), value_of(metrics.state_snapshot_bytes)) == (2, 200)
    assert [value_of(metrics.drafter_quarantines[reason]) for reason in ("late", "lost")] == [1, 1]


def test_without_a_drafter_nothing_is_attached() -> None:
    metrics = TargetMetrics(CollectorRegistry(), "m", "p")
    StateMeter(
        metrics, Counters, CaptureCost(), BlockPool(8, 16), None, None, Handing(HandoffMode.HOST, "host"), Experts()
    ).publish()
    assert value_of(metrics.drafter_attaches) == 0
    assert value_of(metrics.handoff_wanted["host"]) == 0, "PacelinePairDegraded takes it for a drafter that is missing"


def test_a_hand_off_that_falls_back_is_seen() -> None:
    metrics, handing = TargetMetrics(CollectorRegistry(), "m", "p"), Handing(HandoffMode.SOCKET, "socket")
    meter = StateMeter(metrics, Counters, CaptureCost(), BlockPool(8, 16), None, Attaching(), handing, Experts())
    meter.publish()
    handing.in_use = "host"
    meter.publish()
    assert [value_of(metrics.handoff_mode[mode]) for mode in ("socket", "host")] == [0, 1]
    assert value_of(metrics.handoff_wanted["socket"]) == 1
