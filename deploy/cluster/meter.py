"""What the controller counts of a pair."""

from deploy.cluster.registry import PairEntry
from services.common.metrics.catalogue import PAIR_STATES, SERVICES, PairMetrics


class PairMeter:
    """Keeps the metrics of one pair."""

    def __init__(self, metrics: PairMetrics) -> None:
        self._metrics = metrics
        self._restarts = dict.fromkeys(SERVICES, 0)

    def placed(self) -> None:
        """The pair has a place."""
        self._metrics.cluster_placements.inc()

    def failed(self, reason: str) -> None:
        """The pair cannot serve, for one of PAIR_FAILURES."""
        self._metrics.cluster_failures[reason].inc()

    def announced(self, entry: PairEntry) -> None:
        """Takes over what gateways are told."""
        for state in PAIR_STATES:
            self._metrics.cluster_pairs[state].set(state == entry.state)
        for service, restarts in zip(SERVICES, (entry.target_restarts, entry.drafter_restarts), strict=True):
            self._metrics.cluster_restarts[service].inc(restarts - self._restarts[service])
            self._restarts[service] = restarts
