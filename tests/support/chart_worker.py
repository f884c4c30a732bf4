"""What the chart gives the container of a worker on a CPU; a test of the rendered chart holds that this is true."""

from dataclasses import dataclass

VALUES = {
    "model": {"path": "/models/target", "drafterPath": "/models/drafter", "name": "embedded"},
    "workers": {"gpusPerPod": 0},
}
ARGUMENTS = (
    "--model=/models/target",
    "--model-name=embedded",
    "--drafter=/models/drafter",
    "--proposer=dflash",
    "--placement=cpu",
    "--slots=64",
    "--base-port=50061",
    "--listen=0.0.0.0:50050",
    "--health=0.0.0.0:50052",
    "--metrics=0.0.0.0:9100",
    "--run-dir=/tmp/paceline",
    "--drain-s=120",
    "--session-secret-file=/session/secret",
    "--pairs=1",
    "--pairs-per-gpu=1",
    "--host=$(POD_IP)",
    "--pair-prefix=llm-worker-$(POD_IP)-",
    "--mps=auto",
)


@dataclass(frozen=True)
class Probe:
    """A liveness probe, with Kubernetes' own time-out."""

    period_s: float
    failures: int
    grace_s: float
    timeout_s: float = 1.0


LIVENESS = Probe(period_s=10, failures=3, grace_s=10)
