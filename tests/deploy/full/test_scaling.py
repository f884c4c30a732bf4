"""What KEDA reads from Prometheus, by promtool: requests of this release, on pairs or in gateways, or none."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.full.charts import AUTOSCALING, BASE, render
from tests.deploy.full.prometheus import promtool
from tests.deploy.test_values import merged


def series(name: str, labels: str, value: int) -> dict[str, str]:
    return {"series": f"paceline_{name}{{{labels}}}", "values": f"{value}x10"}


def pair(pod: str, running: int, waiting: int, namespace: str = "inference", model: str = "model") -> list[Any]:
    labels = f'namespace="{namespace}",model_name="{model}",pair="{pod}-pair-0",pod="{pod}"'
    return [series("running_requests", labels, running), series("waiting_requests", labels, waiting)]


def gateway(pod: str, inflight: int, namespace: str = "inference") -> dict[str, str]:
    return series("gateway_inflight_requests", f'namespace="{namespace}",pod="{pod}",model_name="model"', inflight)


BUSY = [*pair("llm-worker-10.0.0.7", 40, 5), *pair("llm-worker-10.0.0.8", 60, 0)]
OTHERS = [*pair("llm-worker-a", 9, 9, namespace="else"), *pair("chat-worker-a", 7, 7), gateway("chat-gateway-x", 50)]
LONGER = [  # Releases called llm-worker-x and llm-gateway-x.
    *pair("llm-worker-x-worker-10.0.0.9", 3, 4),
    *(gateway(f"llm-{part}-x-gateway-6b7d-x2x4z", 9) for part in ("worker", "gateway")),
]


@pytest.mark.parametrize(
    ("given", "demand"),
    [
        ([], 0),
        ([gateway("llm-gateway-x", 3)], 3),
        ([gateway("llm-gateway-x", 3), gateway("llm-gateway-y", 4)], 7),
        ([*BUSY, gateway("llm-gateway-x", 100)], 105),
        ([*BUSY, gateway("llm-gateway-x", 150)], 150),
        (BUSY, 105),
        (OTHERS, 0),
        (LONGER, 0),
        ([*LONGER, *pair("llm-worker-fd00::1f", 2, 1), gateway("llm-gateway-6b7d-x2x4z", 1)], 3),
    ],
)
def test_demand_is_what_this_release_has_in_hand(given: list[Any], demand: int, tmp_path: Path) -> None:
    documents = render(merged(BASE, {"workers": {"autoscaling": AUTOSCALING}}))
    (scaler,) = [each["spec"] for each in documents if each["kind"] == "ScaledObject"]
    query = scaler["triggers"][0]["metadata"]["query"]
    wanted = {"expr": query, "eval_time": "5m", "exp_samples": [{"labels": "{}", "value": demand}]}
    tests = [{"interval": "1m", "input_series": given, "promql_expr_test": [wanted]}]
    (tmp_path / "demand.test.yaml").write_text(yaml.safe_dump({"rule_files": [], "tests": tests}))
    done = promtool("test", "rules", tmp_path / "demand.test.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
