"""A board as the JSON that Grafana loads. Needs grafana-foundation-sdk (requirements/deploy.txt)."""

import json
from string import ascii_uppercase
from typing import TypeAlias

from grafana_foundation_sdk.builders import bargauge, common, dashboard, heatmap, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BarGaugeDisplayMode,
    GraphThresholdsStyleMode,
    LegendDisplayMode,
    SortOrder,
    TooltipDisplayMode,
    VizOrientation,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLink,
    DashboardLinkType,
    DataSourceRef,
    FieldColorModeId,
    Threshold,
    ThresholdsMode,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from deploy.grafana.panels import Board, Panel
from deploy.grafana.promql import CLUSTER, MODEL, NAMESPACE

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
        .with_variable(_variable("cluster", "label_values(paceline_build_info, cluster)"))
        .with_variable(_variable("namespace", f"label_values(paceline_build_info{{{CLUSTER}}}, namespace)"))
        .with_variable(_variable("model", f"label_values(paceline_build_info{{{NAMESPACE}}}, model_name)"))
        .with_variable(_variable("pair", f"label_values(paceline_ready{{{MODEL}}}, pair)"))
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(_boards())
        .annotation(_deploys())
    )
    for identity, panel in enumerate(board.panels, start=1):
        builder.with_panel(_panel(panel, identity))
    return json.dumps(json.loads(JSONEncoder(sort_keys=True, indent=2).encode(builder.build())), indent=2) + "\n"


def _variable(name: str, query: str) -> dashboard.QueryVariable:
    return dashboard.QueryVariable(name).query(query).datasource(SOURCE).include_all(True).multi(True).all_value(".*")


def _boards() -> dashboard.DashboardLink:
    """The other boards, with the same variables and time."""
    link = dashboard.DashboardLink("paceline").type(DashboardLinkType.DASHBOARDS)
    return link.tags(["paceline"]).include_vars(True).keep_time(True)


def _deploys() -> dashboard.AnnotationQuery:
    """A mark where processes start that were not there a minute before: a deploy, a scaling, a new pod."""
    shown = f"paceline_build_info{{{MODEL}}}"
    query = dashboard.AnnotationQuery().name("Starts and deploys").datasource(SOURCE).enable(True).icon_color("blue")
    return query.expr(f"count by (namespace, model_name, version) ({shown} unless {shown} offset 1m)")


Built: TypeAlias = timeseries.Panel | stat.Panel | heatmap.Panel | bargauge.Panel


def _panel(panel: Panel, identity: int) -> Built:
    built = _kind(panel)
    built.id(identity).title(panel.title).unit(panel.unit).description(panel.description).datasource(SOURCE)
    built.span(6 if panel.single else 12).height(8)
    for name, (expression, legend) in zip(ascii_uppercase, panel.expressions, strict=False):
        query = prometheus.Dataquery().ref_id(name).expr(expression).legend_format(legend)
        query = query.format(PromQueryFormat.HEATMAP) if panel.heatmap else query
        built.with_target(query.instant() if panel.ranked else query)
    if panel.runbook:
        built.links([_Link(f"{RUNBOOKS}/{panel.runbook}.md")])
    return built


def _kind(panel: Panel) -> Built:
    if panel.heatmap:
        return heatmap.Panel().calculate(False)
    built = stat.Panel() if panel.single else _bars() if panel.ranked else _curves(panel)
    most = 1.0 if panel.unit == "percentunit" and panel.most is None else panel.most
    if panel.least is not None:
        built.min(panel.least)
    if most is not None:
        built.max(most)
    if panel.steps:
        first = Threshold(value=None, color=panel.below)
        steps = [first, *(Threshold(value=value, color=color) for value, color in panel.steps)]
        built.thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
    return built.no_value(panel.empty)


def _bars() -> bargauge.Panel:
    """One bar a series, the first on top, the redder the longer it is beside the others."""
    colour = dashboard.FieldColor().mode(FieldColorModeId.CONTINUOUS_GR_YL_RD)
    built = bargauge.Panel().orientation(VizOrientation.HORIZONTAL).display_mode(BarGaugeDisplayMode.BASIC)
    return built.color_scheme(colour)


def _curves(panel: Panel) -> timeseries.Panel:
    legend = common.VizLegendOptions().show_legend(True).display_mode(LegendDisplayMode.TABLE)
    legend = legend.calcs(["min", "mean", "max", "lastNotNull"]).sort_by("Max").sort_desc(True)
    built = timeseries.Panel().legend(legend)
    built.tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
    if panel.steps:
        built.thresholds_style(common.GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED))
    return built


class _Link:
    """A link to a runbook, in the form of the SDK's builders."""

    def __init__(self, url: str) -> None:
        self._url = url

    def build(self) -> DashboardLink:
        """The link to a runbook, as Grafana's library has it."""
        return DashboardLink(title="Runbook", type_val=DashboardLinkType.LINK, url=self._url, target_blank=True)
