"""What the adaptive policy of widths weighs, and how much of it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AdaptiveSettings:
    """`hysteresis` is the gain that a switch must promise. It is divided by 1 + rounds since the last one / `patience`.

    A probe is one round of another width, a trial one of a width whose cost is not known yet. All of them may lose the
    share `probe_budget` of the time of all rounds, by what is expected when they are planned: what they commit is
    chance, and luck must not pay for more of them. The gap between probes grows from `probe_first` to `probe_last`
    rounds while they change nothing. It is at most `probe_close` while a wider width promises the share `close` of the
    present width's tokens per second. A probe of a narrower width shows its cost, and nothing of acceptance that wider
    rounds do not show.

    A visit is a run of rounds of another width that promises the share `near` of the present one's tokens per second.
    It is visited again after `visit_first` such runs, and then each time after `visit_growth` times as many, between
    trees and chains after `visit_apart` times as many, up to `visit_last` rounds. Rounds of fewer rows than
    `visit_rows` leave a GPU below its limit, and what they accept changes too often for runs. Trees and chains visit
    one another there too, by short runs, and by nothing else: what a tree asks of the host falls into the round behind
    it, so single rounds do not tell. They are near where their rate, raised by `doubt` times the share by which it may
    be off, would be the better one. It may be off by `least_unsure` at the least. Trees are used where they gain more
    than `caution` times that share.

    No other width is tried, visited or probed in the first `settled` rounds of a bucket in a row, unless it was not for
    `unsettled` of its rounds: while a burst begins or ends each bucket lasts for few rounds.

    Rows are left out of a round for a gain of the share `left_out`. A step to a wider width must gain the share `wider`
    for each 64 rows: while requests end, wide rounds of many rows waste more. Chains of any lengths must gain the share
    `ragged`: rows that go to the requests of which most is thought go to luck as well. They need `ragged_rows`
    requests: of fewer chance decides.
    """

    hysteresis: float = 0.03
    patience: int = 64
    probe_budget: float = 0.006
    probe_first: int = 16
    probe_last: int = 256
    close: float = 0.85
    probe_close: int = 8
    near: float = 0.94
    doubt: float = 1.5
    least_unsure: float = 0.04
    caution: float = 1.0
    visit_rows: int = 16
    visit_first: int = 4
    visit_growth: int = 4
    visit_apart: float = 1.5
    visit_last: int = 1024
    settled: int = 6
    unsettled: int = 96
    left_out: float = 0.02
    wider: float = 0.008
    ragged: float = 0.015
    ragged_rows: int = 16
