"""What a service of a pair answers when the controller asks; imports no ray."""

from dataclasses import dataclass
from enum import Enum

from deploy.cluster.failure import Failure
from services.common.serving.server import Bound


class Missing(Enum):
    """Why there is no report of a service."""

    UNASKED = "it has no process, or its answer is still awaited"
    SILENT = "it did not answer in time"
    GONE = "its process has ended, and Ray begins it again"


@dataclass(frozen=True)
class ActorReport:
    """What an actor says of itself."""

    pid: int
    bound: Bound
    ready: bool
    gpu_uuids: tuple[str, ...]
    gpu_sharing: str
    failure: Failure | None = None
    still_s: float = 0.0
    """Seconds for which its engine has finished no turn."""


Answer = ActorReport | Missing
