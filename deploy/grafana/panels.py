"""What a dashboard consists of; knows nothing of Grafana's format."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Panel:
    """One panel: expressions are (PromQL, legend) pairs; runbook is a page of docs/operate, for panels that alert."""

    title: str
    unit: str
    description: str
    expressions: tuple[tuple[str, str], ...]
    runbook: str = ""
    single: bool = False


@dataclass(frozen=True)
class Board:
    """One dashboard; uid is stable over versions."""

    uid: str
    title: str
    description: str
    panels: tuple[Panel, ...]
