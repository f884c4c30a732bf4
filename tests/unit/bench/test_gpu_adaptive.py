"""What a profile's rows tell of the loads that each mode has served."""

from __future__ import annotations

from typing import Any

from tests.bench.gpu.adaptive import ADAPTIVE, PLAIN, Series, _rows


def series(draft: int | None, *whole: float) -> Series:
    one = Series(draft, speeds=list(whole), raw=list(whole), whole=list(whole), micros=[1000.0] * len(whole))
    one.widths[1 if draft == 0 else 16] = len(whole)
    return one


def adaptive_row(modes: dict[str, Series], *dropped: str) -> dict[str, Any]:
    return _rows("P65", 8, 512, modes, dropped)[-1]


def test_luck_in_most_loads_is_best_by_medians_and_not_by_all_of_them() -> None:
    modes = {
        PLAIN: series(0, 20.0, 20.0, 20.0),
        "w12": series(11, 102.0, 102.0, 51.0),
        "w16": series(15, 100.0, 100.0, 100.0),
        ADAPTIVE: series(None, 100.0, 100.0, 100.0),
    }
    row = adaptive_row(modes)
    assert (row["best_whole"], row["regret_whole"]) == ("w12", round(1 - 100 / 102, 4))
    assert (row["best_together"], row["regret_together"]) == ("w16", 0.0)


def test_all_loads_together_are_as_fast_as_their_tokens_by_their_time() -> None:
    modes = {PLAIN: series(0, 20.0, 20.0), "w16": series(15, 100.0, 50.0), ADAPTIVE: series(None, 50.0, 50.0)}
    rows = _rows("P65", 8, 512, modes, ())
    (fixed,) = (row for row in rows if row["mode"] == "fixed")
    assert (fixed["whole_together_tok_s"], fixed["whole_all"]) == (66.7, [100.0, 50.0])
    assert rows[-1]["regret_together"] == 0.25


def test_a_width_that_was_dropped_is_no_rival() -> None:
    modes = {
        PLAIN: series(0, 20.0, 20.0, 20.0),
        "w4": series(3, 200.0, 200.0),
        "w16": series(15, 100.0, 100.0, 100.0),
        ADAPTIVE: series(None, 99.0, 99.0, 99.0),
    }
    assert adaptive_row(modes, "w4")["best_together"] == "w16"
