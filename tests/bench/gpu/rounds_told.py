"""What a pair tells of its latest rounds, in a line."""

import statistics
from collections import Counter

from tests.integration.pair import PairProcesses


def times_of_rounds(pair: PairProcesses, bucket: int) -> str:
    """Medians of the latest rounds with drafts, and what rounds of a bucket are thought to take, microseconds."""
    told = pair.describe()
    rounds = [one for one in told.rounds if one.width > 1] or list(told.rounds)
    parts = [statistics.median(getattr(one, name) for one in rounds) for name in ("draft_us", "verify_us", "host_us")]
    costs = {f"{cost.width}{' nodes' * cost.nodes}": round(cost.micros) for cost in told.costs if cost.bucket == bucket}
    full, fewer = (
        dict(
            Counter(
                f"{one.width}{' nodes' * one.nodes}"
                for one in told.rounds
                if (4 * one.requests > 3 * bucket) == is_full
            )
        )
        for is_full in (True, False)
    )
    took = f"draft {parts[0]}, verify {parts[1]}, host {parts[2]} us of {len(rounds)} rounds"
    return f"  {took}; costs {costs}; rounds {full}, of fewer {fewer}"
