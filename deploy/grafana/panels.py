"""What a dashboard consists of; knows nothing of Grafana's format."""

import re
from dataclasses import dataclass

OK, WARN, BAD = "green", "orange", "red"


@dataclass(frozen=True)
class Panel:
    """One panel: expressions are (PromQL, legend) pairs; runbook is a page of docs/operate, for panels that alert.

    ``steps`` are (value, colour) from which a colour holds; ``least`` and ``most`` bound the axis, None leaves it open.
    A heatmap has one expression, of buckets by ``le``. A ``ranked`` panel shows the present
    values of expressions that sort.
    """

    title: str
    unit: str
    description: str
    expressions: tuple[tuple[str, str], ...]
    runbook: str = ""
    single: bool = False
    steps: tuple[tuple[float, str], ...] = ()
    heatmap: bool = False
    ranked: bool = False
    least: float | None = 0.0
    most: float | None = None

    def __post_init__(self) -> None:
        """Says in each legend where its series are: two releases may be called alike."""
        placed = tuple((expression, legend_of(expression, legend)) for expression, legend in self.expressions)
        object.__setattr__(self, "expressions", placed)

    @property
    def below(self) -> str:
        """The colour below the first step: what is good from some value on is bad there."""
        return BAD if any(colour == OK for _, colour in self.steps) else OK

    @property
    def empty(self) -> str:
        """What stands where it has no data: of others' exporters they are not scraped, of events none is counted.

        A quantile or a share has none without traffic.
        """
        text = " ".join(expression for expression, _ in self.expressions)
        if any(name in text for name in ("DCGM_", "kube_", "container_")):
            return "exporter not scraped"
        if all(COUNTED.match(expression) for expression, _ in self.expressions):
            return "none counted"
        return "no traffic" if "rate(" in text or "increase(" in text else "no data"


COUNTED = re.compile(r"round\(|sum by \([^)]*\) \((rate|increase)\([^/]*$")
"""Expressions of events, by step or a second, that nothing divides."""
PLACE = "{{cluster}} {{namespace}}"


def legend_of(expression: str, legend: str) -> str:
    """A legend that says where its series are if the expression has one for each namespace; Grafana's {{label}}."""
    grouped = re.search(r"\bby \(([^)]*)\)", expression)
    apart = "namespace" in (grouped[1].split(", ") if grouped else ["namespace"])
    ours = re.search(r"[{,]namespace=~", expression)
    return f"{PLACE} {legend}" if apart and ours and "{{namespace}}" not in legend else legend


@dataclass(frozen=True)
class Board:
    """One dashboard; uid is stable over versions."""

    uid: str
    title: str
    description: str
    panels: tuple[Panel, ...]
