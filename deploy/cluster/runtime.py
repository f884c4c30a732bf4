"""Starts and stops the Ray runtime that places the pairs."""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import ray
from ray._private import node, parameter

from services.common.serving.process import end_descendants

STAND_IN = "paceline_pair"
_LONGEST = 300
logger = logging.getLogger(__name__)


class RayStartError(RuntimeError):
    """Ray did not start, twice; one sentence."""


def start(run_dir: Path, pairs: int, address: str = "", fake_gpus: int | None = None) -> None:
    """Starts Ray inside this process, or joins the cluster at address.

    The stand-in resource lets machines without GPUs hold as many pairs as asked for. Object store and CPU
    figures are small because only control messages travel through Ray. fake_gpus is for tests of placement.
    environment.prepare must have run before ray was imported.

    Raises:
        RayStartError: it failed, and failed again.
    """
    if address:
        # The pairs are on other machines, and what they write comes here by Ray's own means.
        _twice(lambda: ray.init(address=address, log_to_driver=True, logging_level="ERROR"), own=False)
        return
    temp_dir = run_dir / "ray"
    temp_dir.mkdir(mode=0o700, exist_ok=True)
    with _without_monitors():
        _twice(
            lambda: ray.init(
                num_cpus=2,
                num_gpus=fake_gpus,
                resources={STAND_IN: float(pairs)},
                object_store_memory=80 * 1024 * 1024,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="ERROR",
                _temp_dir=str(temp_dir),
            ),
            own=True,
        )


@contextmanager
def _without_monitors() -> Iterator[None]:
    """A Ray that starts here has no process that hands logs on, none that adds machines, and no server of its own API.

    `ray start` has flags for the first two, `ray.init` has not. Each takes most of a second of CPU to start, has 70 to
    100 MB, and then looks around all the time, on the cores that target and drafter are pinned to.
    """
    whole, served = parameter.RayParams, node.Node.start_api_server
    parameter.RayParams = partial(whole, no_monitor=True, include_log_monitor=False)
    node.Node.start_api_server = _nothing
    try:
        yield
    finally:
        parameter.RayParams = whole
        node.Node.start_api_server = served


def _nothing(*_: object, **__: object) -> None:
    """Stands for a start."""


def _twice(begin: Callable[[], object], own: bool) -> None:
    """Starts Ray, once more when the first time fails: on a busy machine its own processes give up early."""
    try:
        begin()
        return
    except (Exception, SystemExit) as error:
        logger.warning("Ray did not start and is started once more: %s", _sentence(error))
    stop()
    if own:
        end_descendants()  # What a broken start leaves would be in the way of the next.
    try:
        begin()
    except (Exception, SystemExit) as error:
        raise RayStartError(f"Ray did not start, nor when it was tried again: {_sentence(error)}") from error


def _sentence(error: BaseException) -> str:
    """What an error says: of a traceback in it the last line, and no mark below a line of code."""
    told = f"exit code {error.code}" if isinstance(error, SystemExit) else str(error)
    lines = [line.strip() for line in told.splitlines() if line.strip(" ^~\t")]
    if any(line.startswith("Traceback (") for line in lines):
        lines = lines[-1:]
    text = re.sub(r"\^{2,}|\x1b\[[0-9;]*m", "", " ".join(" ".join(lines).split()))
    said = text or type(error).__name__
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST].rsplit(' ', 1)[0]} ..."


def stop() -> None:
    """Stops the Ray runtime of this process, if there is one."""
    if ray.is_initialized():
        ray.shutdown()


def resource_name(placement: str) -> str:
    """The resource that one pair takes one of: "GPU", or the stand-in where there are none."""
    if placement == "auto":
        return "GPU" if ray.cluster_resources().get("GPU", 0) >= 1 else STAND_IN
    return "GPU" if placement == "gpu" else STAND_IN
