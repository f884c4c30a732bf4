"""Short ways to build schedulers and requests, and to run rounds on the simulated device."""

from services.common.request.sampling import SamplingParams, SpeculationParams, StopParams
from services.target.cache.blocks import BlockPool
from services.target.cache.prefix_cache import PrefixCache
from services.target.cache.snapshots import SnapshotPool
from services.target.core.plan import Plan, Progress
from services.target.core.request import RequestSpec
from services.target.scheduling.scheduler import Scheduler
from services.target.scheduling.settings import SchedulerSettings
from services.target.scheduling.width.policy import FixedWidth, WidthPolicy
from tests.unit.target.scheduling.simulated import EOS, SimulatedRunner

BLOCK, GRID = 4, 8


def spec(
    prompt: int = 6,
    tokens: int = 8,
    *,
    seed: int = 1,
    priority: int = 0,
    deadline: float | None = None,
    salt: bytes = b"",
    tenant: str = "",
    off: bool = False,
    ids: tuple[int, ...] = (),
) -> RequestSpec:
    """A request; the prompt is `ids`, or `prompt` tokens that depend on the seed."""
    token_ids = ids or tuple(2 + (seed * 31 + index * 7) % 300 for index in range(prompt))
    return RequestSpec(
        request_id=f"r{seed}",
        token_ids=token_ids,
        prompt_length=len(token_ids),
        sampling=SamplingParams(seed=seed),
        stopping=StopParams(max_tokens=tokens, ignore_eos=True),
        speculation=SpeculationParams(off=off),
        priority=priority,
        deadline=deadline,
        salt=salt,
        tenant=tenant,
    )


class Rig:
    """A scheduler with a simulated device behind it; with `snapshots` places its model has recurrent states."""

    def __init__(
        self,
        blocks: int = 64,
        width: int = 4,
        *,
        cached: bool = True,
        policy: WidthPolicy | None = None,
        snapshots: int = 0,
        **changes: object,
    ) -> None:
        sizes: dict[str, object] = {"slots": 4, "context_limit": 64, "buckets": (1, 2, 4), "chunk_tokens": 16}
        self.settings = SchedulerSettings(**(sizes | {"eos": EOS} | changes))  # type: ignore[arg-type]
        self.pool = BlockPool(blocks, BLOCK)
        self.snapshots = SnapshotPool(snapshots, GRID) if snapshots else None
        self.cache = PrefixCache(self.pool, b"model", b"drafter", self.snapshots) if cached else None
        self.scheduler = Scheduler(self.settings, self.pool, self.cache, policy or FixedWidth(width))
        self.device = SimulatedRunner(BLOCK, self.settings.context_limit, GRID if snapshots else 0)
        self.now = 0.0

    def round(self, matched: int = 2) -> tuple[Plan, tuple[Progress, ...]]:
        """One round from plan to commit, with I7 checked."""
        self.now += 1.0
        plan = self.scheduler.plan(self.now)
        if plan.empty:
            return plan, ()
        commit = self.scheduler.commit(plan, self.device.execute(plan, matched), self.now)
        self.scheduler.check()
        return plan, commit.progress

    def finish(self) -> None:
        """Rounds until nobody is left."""
        for _ in range(1000):
            if not self.scheduler.live():
                return
            self.round()
        raise AssertionError("requests never ended")
