"""What Ray reads from the environment; imports no ray."""

import os
import secrets
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def prepare(run_dir: Path, alone: bool = True) -> None:
    """Sets what Ray reads from the environment: a token in run_dir, no usage statistics, our import root and the like.

    A Ray that is `alone` listens on the loopback interface: nobody else joins it, and it knows no other address.

    Must run before ray is imported, because Ray reads its mode of authentication then. Ray would otherwise write its
    token to the home folder, which may be read-only.
    """
    token = run_dir / "ray.token"
    if not token.exists():
        descriptor = os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32))
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_AUTH_TOKEN_PATH", str(token))
    if alone:
        # Ray's own switch, for systems without clusters; an address of loopback that it is given it replaces.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray runs its workers at niceness 15; ours serve users.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # Ray would kill target and drafter when other work fills the host; how little memory they hold does not count.
    os.environ.setdefault("RAY_memory_monitor_refresh_ms", "0")
    # Nor shall the kernel, which Ray tells to end its workers before all other processes of the host.
    os.environ.setdefault("RAY_worker_oom_score_adjustment", "0")
    # Ray would keep records of the last hundred thousand looks at pairs, and those on the way to its control store.
    os.environ.setdefault("RAY_task_events_report_interval_ms", "0")
    # What the services of a cluster that others started write is handed on as it is: lines of JSON.
    os.environ.setdefault("RAY_DISABLE_WORKER_LOG_PREFIX", "1")
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    os.environ.setdefault("RAY_COLOR_PREFIX", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    paths = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
