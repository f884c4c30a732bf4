"""Charts, images, compose files, alerts and dashboards agree with the code; no tool beyond the default environment."""

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from deploy.cluster.settings import ClusterSettings
from deploy.grafana.boards import BOARDS
from deploy.helm import readme
from services.common.metrics.catalogue import DRAFTER, EVERY_SERVICE, GATEWAY, TARGET
from services.gateway.settings import GatewaySettings

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/paceline"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
SUFFIXES = ("_total", "_bucket", "_sum", "_count")


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Values as Helm lays one set over another."""
    result = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def field_names(settings: type[Any]) -> set[str]:
    return {field.name for field in dataclasses.fields(settings)}


def flags(text: str) -> set[str]:
    """Names of the long flags that a template or compose file passes."""
    return {name.replace("-", "_") for name in re.findall(r"^\s*- --([a-z-]+)[={]?", text, re.MULTILINE)}


def catalogue() -> set[str]:
    return {spec.full_name for spec in (*TARGET, *DRAFTER, *GATEWAY, *EVERY_SERVICE)}


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
    template = (CHART / "templates/gateway.yaml").read_text()
    assert flags(template)
    assert flags(template) <= field_names(GatewaySettings)


@pytest.mark.parametrize("name", ["laptop", "gpu"])
def test_compose_flags_are_settings(name: str) -> None:
    compose = yaml.safe_load((ROOT / f"deploy/docker/compose.{name}.yaml").read_text())
    for service, settings in (("worker", ClusterSettings), ("gateway", GatewaySettings)):
        given = {flag[2:].partition("=")[0].replace("-", "_") for flag in compose["services"][service]["command"]}
        assert given <= field_names(settings)


@pytest.mark.parametrize("name", ["gateway", "worker"])
def test_dockerfiles_copy_what_exists(name: str) -> None:
    text = (ROOT / f"deploy/docker/{name}.Dockerfile").read_text()
    sources = re.findall(r"^COPY (?!--from)(\S+)", text, re.MULTILINE)
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
                assert metric_names(expression)
                assert metric_names(expression) <= catalogue(), expression


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


def test_the_default_values_and_profiles_fit_the_schema() -> None:
    jsonschema.Draft7Validator(SCHEMA).validate(VALUES)
    profiles = list((CHART / "profiles").glob("*.yaml"))
    assert profiles
    for profile in profiles:
        jsonschema.Draft7Validator(SCHEMA).validate(merged(VALUES, yaml.safe_load(profile.read_text())))


def test_the_chart_s_page_is_made_from_its_values() -> None:
    assert (CHART / "README.md").read_text() == readme.page(), "run python -m deploy.helm.readme"


def leaves(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Where values and schema differ in names, or the schema lets unknown names pass."""
    if schema.get("type") != "object" or "properties" not in schema:
        return
    if schema.get("additionalProperties") is not False:
        yield f"{path} takes unknown names"
    for name in values.keys() ^ (schema["properties"].keys() - {"global"}):
        yield f"{path}.{name} is not in both"
    for name in values.keys() & schema["properties"].keys():
        if isinstance(values[name], dict):
            yield from leaves(values[name], schema["properties"][name], f"{path}.{name}")


def test_schema_and_values_name_the_same() -> None:
    assert list(leaves(VALUES, SCHEMA)) == []


BAD = [
    ("image.repository", 3),
    ("image.repository", "with space"),
    ("image.tag", "a/b"),
    ("image.pullPolicy", "Sometimes"),
    ("image.unknown", 1),
    ("model.name", ""),
    ("model.path", "relative"),
    ("model.drafterPath", "relative"),
    ("model.existingClaim", "Upper"),
    ("model.download.enabled", "yes"),
    ("model.download.sizeLimit", "many"),
    ("gateway.replicas", -1),
    ("gateway.replicas", 1.5),
    ("gateway.port", 80),
    ("gateway.port", 70000),
    ("gateway.env", {"lower": "1"}),
    ("gateway.graceSeconds", 0),
    ("gateway.service.type", "Ingress"),
    ("gateway.autoscaling.maxReplicas", 0),
    ("gateway.autoscaling.targetCPUUtilizationPercentage", 200),
    ("gateway.resources", "plenty"),
    ("workers.replicas", "three"),
    ("workers.gpusPerPod", -1),
    ("workers.gpusPerPod", 64),
    ("workers.slots", 0),
    ("workers.mps", "on"),
    ("workers.mode", "deployment"),
    ("workers.autoscaling.minReplicas", 0),
    ("workers.autoscaling.targetSlotsPercentage", 150),
    ("workers.autoscaling.prometheusAddress", "prometheus:9090"),
    ("workers.raycluster.rayVersion", "latest"),
    ("workers.raycluster.tokenSecretName", "No Spaces"),
    ("workers.raycluster.unknown", 1),
    ("tls.certManager.internal", "yes"),
    ("workers.shmSize", 2),
    ("workers.graceSeconds", "long"),
    ("workers.resources", 8),
    ("tls.secretName", "No Spaces"),
    ("tls.certManager.issuerRef.kind", "Anyone"),
    ("auth.apiKeysSecretName", 5),
    ("serviceAccount.create", "true"),
    ("podDisruptionBudget.maxUnavailable", "half"),
    ("metrics.podMonitor.interval", "often"),
    ("metrics.serviceMonitor.interval", 15),
    ("metrics.runbooks", "https://wiki.example/"),
    ("metrics.runbooks", ""),
    ("topologySpread.topologyKey", ""),
    ("unknown", 1),
]


@pytest.mark.parametrize(("path", "value"), BAD)
def test_the_schema_refuses(path: str, value: Any) -> None:
    values = json.loads(json.dumps(VALUES))
    *parents, last = path.split(".")
    place = values
    for parent in parents:
        place = place[parent]
    place[last] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(SCHEMA).validate(values)
