"""What a policy of widths has chosen for a bucket, and when it looks at other widths there."""

from collections import deque
from dataclasses import dataclass, field

from services.target.core.width import Width
from services.target.scheduling.width.visits import RUN, Visit


@dataclass(slots=True)
class BucketChoice:
    """The choice for one bucket, its age in rounds, and when to probe or visit another width.

    `recent` are microseconds of the latest rounds of the present width in a row. Of visits between chains and trees so
    many were `begun`, and so many `told` something.
    """

    width: Width
    stayed: int = 0
    quiet: int = 0
    gap: int = 0
    probes: int = 0
    probing: bool = False
    trials: int = 0
    rounds: int = 0
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RUN // 2))
    visit: Visit | None = None
    due: dict[Width, int] = field(default_factory=dict)
    visits: dict[Width, int] = field(default_factory=dict)
    begun: int = 0
    told: int = 0
    scatter: float = 0.0
