"""Starts and stops the Ray runtime that places the pairs."""

import os
import secrets
from pathlib import Path

import ray

REPOSITORY = Path(__file__).resolve().parents[2]
STAND_IN = "paceline_pair"


def prepare_environment(run_dir: Path) -> None:
    """Sets what Ray reads from the environment: a token in run_dir, no usage statistics, our import root.

    Ray would otherwise write its token to the home folder, which may be read-only.
    """
    token = run_dir / "ray.token"
    if not token.exists():
        descriptor = os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32))
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_AUTH_TOKEN_PATH", str(token))
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    paths = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))


def start(run_dir: Path, pairs: int, address: str = "", fake_gpus: int | None = None) -> None:
    """Starts Ray inside this process, or joins the cluster at address.

    The stand-in resource lets machines without GPUs hold as many pairs as asked for. Object store and CPU
    figures are small because only control messages travel through Ray. fake_gpus is for tests of placement.
    """
    prepare_environment(run_dir)
    if address:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        return
    temp_dir = run_dir / "ray"
    temp_dir.mkdir(mode=0o700, exist_ok=True)
    ray.init(
        num_cpus=2,
        num_gpus=fake_gpus,
        resources={STAND_IN: float(pairs)},
        object_store_memory=80 * 1024 * 1024,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        _temp_dir=str(temp_dir),
    )


def stop() -> None:
    """Stops the Ray runtime of this process, if there is one."""
    if ray.is_initialized():
        ray.shutdown()


def resource_name(placement: str) -> str:
    """The resource that one pair takes one of: "GPU", or the stand-in where there are none."""
    if placement == "auto":
        return "GPU" if ray.cluster_resources().get("GPU", 0) >= 1 else STAND_IN
    return "GPU" if placement == "gpu" else STAND_IN
