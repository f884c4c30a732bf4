"""python -m deploy.grafana.build [--check]: writes the dashboards' JSON, or says that it is out of date.

Needs grafana-foundation-sdk (requirements/deploy.txt).
"""

import argparse
import json
from pathlib import Path
from string import ascii_uppercase

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DashboardLink, DashboardLinkType, DataSourceRef

from deploy.grafana.boards import BOARDS
from deploy.grafana.panels import Board, Panel

FOLDER = Path(__file__).parent / "dashboards"
# A path of the repository; the chart puts the address of your copy in its place (metrics.runbooks).
RUNBOOKS = "docs/operate"
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")


def render(board: Board) -> str:
    """The dashboard as JSON."""
    builder = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags(["paceline"])
        .refresh("10s")
        .time("now-30m", "now")
        .with_variable(dashboard.DatasourceVariable("datasource").type("prometheus").label("Data source"))
        .with_variable(_variable("model", "label_values(paceline_build_info, model_name)"))
        .with_variable(_variable("pair", 'label_values(paceline_ready{model_name=~"$model"}, pair)'))
    )
    for identity, panel in enumerate(board.panels, start=1):
        builder.with_panel(_panel(panel, identity))
    return json.dumps(json.loads(JSONEncoder(sort_keys=True, indent=2).encode(builder.build())), indent=2) + "\n"


def _variable(name: str, query: str) -> dashboard.QueryVariable:
    return dashboard.QueryVariable(name).query(query).datasource(SOURCE).include_all(True).multi(True).all_value(".*")


def _panel(panel: Panel, identity: int) -> timeseries.Panel | stat.Panel:
    built = stat.Panel() if panel.single else timeseries.Panel()
    built.id(identity).title(panel.title).unit(panel.unit).description(panel.description).datasource(SOURCE)
    built.span(6 if panel.single else 12).height(8)
    for name, (expression, legend) in zip(ascii_uppercase, panel.expressions, strict=False):
        built.with_target(prometheus.Dataquery().ref_id(name).expr(expression).legend_format(legend))
    if panel.runbook:
        built.links([_Link(f"{RUNBOOKS}/{panel.runbook}.md")])
    if isinstance(built, timeseries.Panel):
        built.legend(common.VizLegendOptions().show_legend(True))
    return built


class _Link:
    """A link to a runbook, in the form of the SDK's builders."""

    def __init__(self, url: str) -> None:
        self._url = url

    def build(self) -> DashboardLink:
        """The link."""
        return DashboardLink(title="Runbook", type_val=DashboardLinkType.LINK, url=self._url, target_blank=True)


def main() -> int:
    """Writes, or checks, every dashboard; 1 when one is out of date."""
    parser = argparse.ArgumentParser(prog="python -m deploy.grafana.build", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say which are old")
    check = parser.parse_args().check
    stale = [board for board in BOARDS if _write(board, check)]
    for board in stale:
        print(f"{board.uid}.json is out of date" if check else f"wrote {board.uid}.json")
    return 1 if check and stale else 0


def _write(board: Board, check: bool) -> bool:
    """True when the file differs from what the panels say; without check it is written."""
    path, text = FOLDER / f"{board.uid}.json", render(board)
    if path.exists() and path.read_text() == text:
        return False
    if not check:
        path.write_text(text)
    return True


if __name__ == "__main__":
    raise SystemExit(main())
