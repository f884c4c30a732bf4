"""The pods of the fault tests are those of the chart."""

from tests.deploy.full.charts import BASE, render, templates
from tests.deploy.test_values import merged
from tests.support.chart_worker import ARGUMENTS, LIVENESS, VALUES


def test_the_fault_tests_start_workers_as_the_chart_does() -> None:
    containers = [pod["spec"]["containers"][0] for pod in templates(render(merged(BASE, VALUES)))]
    (worker,) = (container for container in containers if container["name"] == "worker")
    assert tuple(worker["args"]) == ARGUMENTS
    probe = worker["livenessProbe"]
    assert probe.pop("grpc")["service"] == "liveness"
    assert probe == {
        "periodSeconds": LIVENESS.period_s,
        "failureThreshold": LIVENESS.failures,
        "terminationGracePeriodSeconds": LIVENESS.grace_s,
    }
