"""The chart's values: their schema refuses what is wrong, their page tells what they are."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from deploy.cluster.groups import DRAFTER, TARGET
from deploy.helm import readme, schema
from tests.deploy.test_drift import CHART

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Values as Helm lays one set over another."""
    result = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def test_the_default_values_and_profiles_fit_the_schema() -> None:
    jsonschema.Draft7Validator(SCHEMA).validate(VALUES)
    profiles = list((CHART / "profiles").glob("*.yaml"))
    assert profiles
    for profile in profiles:
        jsonschema.Draft7Validator(SCHEMA).validate(merged(VALUES, yaml.safe_load(profile.read_text())))


def test_the_chart_s_page_is_made_from_its_values() -> None:
    assert (CHART / "README.md").read_text() == readme.page(), "run python -m deploy.helm.readme"


def test_the_schema_knows_every_setting_of_target_and_drafter() -> None:
    assert (CHART / "values.schema.json").read_text() == schema.text(), "run python -m deploy.helm.schema"
    for group in (TARGET, DRAFTER):
        assert set(group.free) <= SCHEMA["definitions"][group.prefix]["properties"].keys()


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
    ("workers.target.width", [1, 4]),
    ("workers.target.widths", "1,4"),
    ("workers.target.prefix_cache", "no"),
    ("workers.target.slots", 8),
    ("workers.target.grpc", "0.0.0.0:1"),
    ("workers.drafter.ngram_max", 2.5),
    ("workers.drafter.proposer", "none"),
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
    ("auth.sessionSecretName", "No Spaces"),
    ("serviceAccount.create", "true"),
    ("podDisruptionBudget.maxUnavailable", "half"),
    ("metrics.podMonitor.interval", "often"),
    ("metrics.serviceMonitor.interval", 15),
    ("metrics.runbooks", "https://wiki.example/"),
    ("metrics.runbooks", ""),
    ("topologySpread.topologyKey", ""),
    ("unknown", 1),
]


GOOD = {"target": {"widths": [1, 4], "prefix_cache": False, "memory_fraction": 0.5}, "drafter": {"ngram_max": 6}}


def test_the_schema_accepts_settings_of_target_and_drafter() -> None:
    jsonschema.Draft7Validator(SCHEMA).validate(merged(VALUES, {"workers": {**GOOD, "mps": True}}))


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
