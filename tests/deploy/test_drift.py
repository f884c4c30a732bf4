"""Charts, images, compose files, alerts and dashboards agree with the code; no tool beyond the default environment."""

import dataclasses
import json
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.cluster.settings import ClusterSettings
from deploy.grafana.boards import BOARDS
from services.common.metrics.catalogue import every_metric
from services.common.request.errors import Code
from services.gateway.http.schema.errors import STATUS
from services.gateway.settings import GatewaySettings

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/paceline"
# Each is told by another that is shown, such as committed tokens by emitted and discarded ones.
NOT_SHOWN = {
    *("arena_reallocations", "attachment_generation", "committed_tokens", "drafter_attachments", "drafter_rounds"),
    *("errors", "graph_capture_seconds", "graph_captures", "graph_replays", "handoff_wanted"),
}
SUFFIXES = ("_total", "_bucket", "_sum", "_count")


def field_names(settings: type[Any]) -> set[str]:
    return {field.name for field in dataclasses.fields(settings)}


def flags(text: str) -> set[str]:
    """Settings that a template or compose file passes as flags, in a file those that are secret."""
    found = re.findall(r"^\s*- --([a-z-]+)[={]?", text, re.MULTILINE)
    return {name.removesuffix("-file").replace("-", "_") for name in found}


def catalogue() -> set[str]:
    return {spec.full_name for spec in every_metric()}


def metric_names(expression: str) -> set[str]:
    """Names of our metrics in a PromQL expression, without the suffixes of the exposition format."""
    names = set()
    for name in re.findall(r"\bpaceline_[a-z_0-9]+", expression):
        stem = next((name.removesuffix(s) for s in SUFFIXES if name.endswith(s)), name)
        names.add(name if name in catalogue() else stem)
    return names


def rules() -> Iterator[dict[str, Any]]:
    for group in yaml.safe_load((ROOT / "deploy/prometheus/rules.yaml").read_text())["groups"]:
        yield from group["rules"]


def test_worker_flags_are_settings_of_the_cluster() -> None:
    for name in ("_worker.tpl", "workers-raycluster.yaml"):
        given = flags((CHART / "templates" / name).read_text())
        assert given
        assert given <= field_names(ClusterSettings)


def test_gateway_flags_are_settings_of_the_gateway() -> None:
    template = (CHART / "templates/_gateway.tpl").read_text()
    assert flags(template)
    assert flags(template) <= field_names(GatewaySettings)


@pytest.mark.parametrize(
    "name", ["memory_monitor_refresh_ms", "task_events_report_interval_ms", "worker_oom_score_adjustment"]
)
def test_every_container_of_the_chart_that_starts_ray_has_off_what_the_controller_has(name: str) -> None:
    started = [path.name for path in (CHART / "templates").iterdir() if "RAY_AUTH_MODE" in path.read_text()]
    assert started == ["_ray.tpl"]
    assert f'{{name: RAY_{name}, value: "0"}}' in (CHART / "templates/_ray.tpl").read_text()
    assert f'os.environ.setdefault("RAY_{name}", "0")' in (ROOT / "deploy/cluster/environment.py").read_text()


@pytest.mark.parametrize("name", ["laptop", "gpu"])
def test_compose_flags_are_settings(name: str) -> None:
    compose = yaml.safe_load((ROOT / f"deploy/docker/compose.{name}.yaml").read_text())
    for service, settings in (("worker", ClusterSettings), ("gateway", GatewaySettings)):
        given = {flag[2:].partition("=")[0].replace("-", "_") for flag in compose["services"][service]["command"]}
        assert given <= field_names(settings)


@pytest.mark.parametrize("name", ["laptop", "gpu"])
def test_compose_services_come_back_and_say_how_they_are(name: str) -> None:
    for service in yaml.safe_load((ROOT / f"deploy/docker/compose.{name}.yaml").read_text())["services"].values():
        assert service["restart"] == "unless-stopped"
        assert "127.0.0.1:50052" in service["healthcheck"]["test"][-1]
        assert any(flag.startswith("--health=") and flag.endswith(":50052") for flag in service["command"])


def test_what_triton_compiles_can_be_loaded_under_compose() -> None:
    worker = yaml.safe_load((ROOT / "deploy/docker/compose.gpu.yaml").read_text())["services"]["worker"]
    assert "/home/paceline:exec" in worker["tmpfs"]


def test_the_worker_image_lists_what_triton_s_launcher_needs() -> None:
    lines = (ROOT / "deploy/docker/worker.packages").read_text().split()
    packages = [line.partition("=")[0] for line in lines]
    assert {"gcc", "libc6-dev", "python3-dev", "python3-venv", "tini", "ca-certificates"} <= set(packages)


@pytest.mark.parametrize("name", ["gateway", "worker"])
def test_a_build_is_sent_what_the_dockerfiles_copy(name: str) -> None:
    everything, *sent = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert everything == "*"
    allowed = [line.removeprefix("!") for line in sent if line.startswith("!")]
    text = (ROOT / f"deploy/docker/{name}.Dockerfile").read_text()
    copies = [line.split() for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE)]
    for source in (source for words in copies for source in words[:-1]):
        assert any(fnmatch(source, each) or source.startswith(f"{each}/") for each in allowed), source


@pytest.mark.parametrize("name", ["gateway", "worker"])
def test_dockerfiles_copy_what_exists(name: str) -> None:
    text = (ROOT / f"deploy/docker/{name}.Dockerfile").read_text()
    copies = [line.split() for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE)]
    sources = [source for words in copies for source in words[:-1]]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
    for requirement in re.findall(r"requirements/\S+\.txt", text):
        assert (ROOT / requirement).is_file(), requirement


def test_every_metric_of_a_rule_is_in_the_catalogue() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    for rule in rules():
        assert metric_names(rule["expr"]) <= catalogue(), rule
        assert set(re.findall(r"\bpaceline:[a-z0-9_:]+", rule["expr"])) <= recorded, rule


def test_every_rule_tells_releases_of_one_name_in_two_namespaces_apart() -> None:
    for rule in rules():
        groups = re.findall(r"\b(?:sum|max|min|avg|count|group)\b(.{0,4})", rule["expr"])
        assert all(each.startswith(" by ") for each in groups), rule
        matched = re.findall(r"\b(?:by|on) \(([^)]*)\)", rule["expr"])
        assert matched or re.search(r"\bpaceline:", rule["expr"]), rule
        assert all({"cluster", "namespace"} <= set(labels.split(", ")) for labels in matched), rule


def test_every_alert_has_a_runbook_with_three_commands() -> None:
    alerts = [rule for rule in rules() if "alert" in rule]
    assert len(alerts) >= 12
    for alert in alerts:
        page = (ROOT / alert["annotations"]["runbook_url"]).read_text()
        commands = page.split("```")[1].strip().splitlines()
        assert len(commands) == 3, alert["alert"]
        assert alert["annotations"]["summary"]
        assert alert["labels"]["severity"] in ("warning", "critical")


def test_dashboards_show_catalogued_metrics_with_unit_and_description() -> None:
    for board in BOARDS:
        for panel in board.panels:
            assert panel.unit, panel.title
            assert panel.description.endswith("."), panel.title
            assert not panel.runbook or (ROOT / f"docs/operate/{panel.runbook}.md").is_file()
            for expression, _ in panel.expressions:
                assert metric_names(expression) or re.search("DCGM_FI_DEV_|kube_deployment_|container_oom_", expression)
                assert metric_names(expression) <= catalogue(), expression


def test_what_a_panel_tells_apart_is_in_its_legend() -> None:
    """Two models, or two pairs, are two lines with two names."""
    for board in BOARDS:
        for panel in board.panels:
            for expression, legend in panel.expressions:
                grouped = re.search(r"\bby \(([^)]*)\)", expression)
                labels = grouped[1].split(", ") if grouped else []
                told = [label for label in labels if label not in ("cluster", "namespace", "le")]
                lacks = [label for label in told if f"{{{{{label}}}}}" not in legend]
                assert panel.heatmap or panel.single or not lacks, f"{board.title}, {panel.title}: {lacks}"


def test_every_variable_of_a_dashboard_acts_on_every_panel() -> None:
    for board in BOARDS:
        committed = json.loads((ROOT / f"deploy/grafana/dashboards/{board.uid}.json").read_text())
        names = [variable["name"] for variable in committed["templating"]["list"]]
        assert names == ["datasource", "cluster", "namespace", "model", "pair"]
        for panel in board.panels:
            for expression, _ in panel.expressions:
                selectors = re.findall(r"\b(?:paceline|DCGM|kube|container)_[A-Za-z_]+\{([^}]*)\}", expression)
                assert selectors and len(selectors) == len(
                    re.findall(r"\b(?:paceline|DCGM|kube|container)_", expression)
                ), expression
                assert all("$cluster" in each and "$namespace" in each for each in selectors), expression


def test_4xx_and_5xx_are_the_codes_that_have_these_statuses() -> None:
    (panel,) = (each for board in BOARDS for each in board.panels if each.title == "Failed calls: 4xx and 5xx")
    shown = [set(re.findall(r"[A-Z_]{3,}", expression.partition("code=~")[2])) for expression, _ in panel.expressions]
    failed = {code: STATUS.get(code, 500) for code in Code if code not in (Code.OK, Code.CANCELLED)}
    for first, codes in zip((4, 5), shown, strict=True):
        assert codes == {code.name for code, status in failed.items() if status // 100 == first}


def test_a_counter_is_drawn_by_its_growth() -> None:
    totals = {f"{spec.full_name}_total" for spec in every_metric() if spec.kind == "counter"}
    for board in BOARDS:
        for panel in board.panels:
            for expression, _ in panel.expressions:
                for counted in re.finditer(r"\bpaceline_[a-z_]+_total\b", expression):
                    assert counted[0] in totals
                    assert expression[: counted.start()].endswith(("rate(", "increase(")), expression


def test_what_is_joined_names_the_labels_that_it_brings_if_only_none() -> None:
    """Without them PromQL takes a bracket that follows for their list, and refuses the whole query."""
    expressions = [text for board in BOARDS for panel in board.panels for text, _ in panel.expressions]
    joined = [text for text in (*expressions, *(rule["expr"] for rule in rules())) if "group_" in text]
    assert joined
    for text in joined:
        for follows in re.split(r"\bgroup_(?:left|right)\b", text)[1:]:
            assert re.match(r"\s*\([a-z_, ]*\)\s*\S", follows), text


def test_dashboards_mark_deploys_link_to_each_other_and_bound_their_axes() -> None:
    for board in BOARDS:
        committed = json.loads((ROOT / f"deploy/grafana/dashboards/{board.uid}.json").read_text())
        assert "paceline_build_info" in committed["annotations"]["list"][0]["expr"]
        (link,) = committed["links"]
        assert link["type"] == "dashboards" and link["tags"] == ["paceline"] and link["includeVars"]
        kinds = {panel["type"] for panel in committed["panels"]}
        assert kinds >= {"timeseries", "heatmap"} or board.uid == "paceline-fleet"
        for panel, shown in zip(board.panels, committed["panels"], strict=True):
            defaults = shown["fieldConfig"]["defaults"] if not panel.heatmap else {}
            assert panel.heatmap or panel.least == defaults.get("min"), panel.title
            assert panel.heatmap or panel.empty == defaults.get("noValue"), panel.title
            assert len(defaults.get("thresholds", {}).get("steps", ())) == len(panel.steps) + bool(panel.steps)


def test_every_metric_is_on_a_dashboard() -> None:
    shown: set[str] = set()
    for board in BOARDS:
        shown |= {name for panel in board.panels for text, _ in panel.expressions for name in metric_names(text)}
    assert {f"paceline_{name}" for name in NOT_SHOWN} == catalogue() - shown


def test_what_alerts_has_a_panel_that_links_to_its_runbook() -> None:
    linked = {panel.runbook for board in BOARDS for panel in board.panels}
    assert {Path(rule["annotations"]["runbook_url"]).stem for rule in rules() if "alert" in rule} <= linked


def test_committed_dashboards_hold_the_panels_of_the_code() -> None:
    for board in BOARDS:
        committed = json.loads((ROOT / f"deploy/grafana/dashboards/{board.uid}.json").read_text())
        assert committed["uid"] == board.uid
        shown = {target["expr"] for panel in committed["panels"] for target in panel["targets"]}
        assert shown == {expression for panel in board.panels for expression, _ in panel.expressions}
        identities = [panel["id"] for panel in committed["panels"]]
        assert len(identities) == len(set(identities))
        for panel in committed["panels"]:
            assert panel["datasource"]["uid"] == "${datasource}"
            queries = [target["refId"] for target in panel["targets"]]
            assert all(queries) and len(queries) == len(set(queries))
            for link in panel.get("links", []):
                assert (ROOT / link["url"]).is_file()


def test_every_download_that_is_shown_or_done_pins_a_revision() -> None:
    """Whoever pastes it gets the same weights next year; names of other things may follow in the same line."""
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.*")]
    files += [path for path in (ROOT / "deploy").rglob("*") if path.suffix in (".md", ".yaml", ".py", ".tpl", ".txt")]
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in files if path.suffix not in (".png", ".pyc")}
    shown = [(name, one) for name, text in texts.items() for one in re.findall(r"\bhf,? download\b[^&`|\n]*", text)]
    assert len(shown) >= 4
    assert [each for each in shown if "--revision" not in each[1]] == []
