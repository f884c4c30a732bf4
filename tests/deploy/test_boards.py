"""What a stranger would misread on a board: shares over one, parts of restarts, two curves of one name."""

import re

from deploy.grafana.boards import BOARDS
from deploy.grafana.panels import Panel
from tests.support.cases import each

PANELS = [panel for board in BOARDS for panel in board.panels]
PER_SECOND = {"tps", "reqps", "ops", "Bps"}
COUNTERS = re.compile(r"rate\((\w+)")


@each("panel", PANELS)
def test_a_share_of_two_counters_ends_at_all_of_them(panel: Panel) -> None:
    """Prometheus stretches a rate to the ends of its window, but not below zero: two counters of one start differ."""
    for expression, _ in panel.expressions:
        if panel.unit == "percentunit" and not panel.ranked and len({*COUNTERS.findall(expression)}) > 1:
            assert expression.startswith("clamp_max("), expression


@each("panel", PANELS)
def test_events_are_counted_whole(panel: Panel) -> None:
    """One restart is not 1.05 of them."""
    for expression, _ in panel.expressions:
        if "increase(" in expression and "/" not in expression and not panel.heatmap:
            assert expression.startswith("round("), expression


@each("panel", PANELS)
def test_no_two_curves_have_one_name(panel: Panel) -> None:
    legends = [legend for _, legend in panel.expressions]
    assert len(legends) == len({*legends}), legends


@each("panel", PANELS)
def test_what_goes_on_for_a_second_says_so(panel: Panel) -> None:
    for expression, legend in panel.expressions:
        if re.match(r"sum by \([^)]*\) \(rate\(", expression) and "/" not in expression:
            unit = panel.unit in PER_SECOND or "_seconds_" in expression or "_bytes_" in expression
            assert unit or legend.endswith("a second"), f"{panel.unit} of {legend}"


@each("panel", PANELS)
def test_a_legend_is_more_than_a_number(panel: Panel) -> None:
    for _, legend in panel.expressions:
        assert panel.heatmap or legend not in ("{{position}}", "{{width}}", "{{le}}"), legend


@each("panel", PANELS)
def test_series_of_two_releases_of_one_name_have_two_legends(panel: Panel) -> None:
    """What tells series apart stands in their legend."""
    for expression, legend in panel.expressions:
        grouped = re.search(r"\bby \(([^)]*)\)", expression)
        apart = grouped[1].split(", ") if grouped else ["cluster", "namespace"] * ("exported_" not in expression)
        unsaid = [label for label in apart if label != "le" and f"{{{{{label}}}}}" not in legend]
        assert panel.heatmap or unsaid == [], legend


@each("panel", PANELS)
def test_events_that_nobody_counted_are_no_lack_of_traffic(panel: Panel) -> None:
    """A share or a quantile wants traffic; a failure that nobody met does not."""
    expressions = [expression for expression, _ in panel.expressions]
    others = any(name in expressions[0] for name in ("DCGM_", "kube_", "container_"))
    counted = all(("rate(" in e or "increase(" in e) and "/" not in e and "quantile" not in e for e in expressions)
    assert (panel.empty == "none counted") == (counted and not others)
