"""Places of windows change hands in the order of rounds, with no fence: no round reads one that another block has got.

A round is planned while the one before has not run. What it takes from a block may be what that one still reads.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import pytest

from services.target.cache.blocks import BlockPool
from services.target.cache.windows import WindowPlaces
from services.target.core.plan import Plan
from services.target.scheduling.scheduler import Scheduler
from services.target.scheduling.settings import SchedulerSettings
from services.target.scheduling.width.policy import FixedWidth
from tests.unit.target.scheduling.scheduling import BLOCK, spec
from tests.unit.target.scheduling.simulated import EOS, SimulatedRunner

WINDOW, CHUNK, WIDTH, CONTEXT = 8, 8, 4, 64


def taken_over(order: str, prompts: Sequence[int] = (40, 33), tokens: int = 12) -> int:
    """Run requests with one round planned ahead; return how often a place went straight to another block.

    `order` says when the device learns of a round's changes: in that of rounds, before the round in front has run, or
    behind the round itself. The device checks what each row finds.
    """
    ahead = max(CHUNK, 2 * WIDTH)
    windows = WindowPlaces(WindowPlaces.needed(WINDOW, ahead, BLOCK), CONTEXT, BLOCK, WINDOW, ahead)
    scheduler = Scheduler(
        SchedulerSettings(
            slots=4, context_limit=CONTEXT, buckets=(1, 2, 4), chunk_tokens=CHUNK, look_ahead=1, eos=EOS
        ),
        BlockPool(CONTEXT, BLOCK, windows),
        None,
        FixedWidth(WIDTH),
    )  # fmt: skip
    device, planned = SimulatedRunner(BLOCK, CONTEXT, window=WINDOW), deque[Plan]()
    for seed, prompt in enumerate(prompts):
        scheduler.add(spec(prompt, tokens, seed=seed), None, 0.0)
    count, owner = 0, dict[int, int]()
    while scheduler.live():
        plan = scheduler.plan(0.0)
        if not plan.empty:
            planned.append(plan)
            count += sum(owner.get(place, block) != block for block, place in plan.moves if place)
            owner |= {place: block for block, place in plan.moves if place}
        if plan.empty or len(planned) > 1:
            now = planned.popleft()
            if order == "early":
                device.learn(move for later in (now, *planned) for move in later.moves)
            done = device.execute(replace(now, moves=() if order != "in order" else now.moves), 2)
            device.learn(now.moves if order == "late" else ())
            scheduler.commit(now, done, 0.0)
            scheduler.check()
    return count


def test_in_the_order_of_rounds_every_row_finds_what_was_written() -> None:
    assert taken_over("in order") > 10


@pytest.mark.parametrize(("order", "found"), [("early", "in the window holds"), ("late", "has no place")])
def test_in_another_order_a_row_finds_another_blocks_content_or_none(order: str, found: str) -> None:
    """So the device applies them where the rounds are enqueued, on the stream that runs these."""
    with pytest.raises(AssertionError, match=found):
        taken_over(order)
