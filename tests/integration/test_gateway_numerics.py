"""Targets that compute differently: where requests of a lost one go on, and what their clients are told."""

import asyncio
from pathlib import Path

from tests.integration.gateway_stack import Answer, Harness, harness
from tests.integration.test_gateway_faults import ready, running
from tests.support.fakes_target import FakeTarget
from tests.support.metrics import value_of


def changes(one: Harness, answers: list[Answer]) -> int:
    """Streams whose final message tells of other numerics; the metric says as many."""
    told = sum(answer.final.numerics_changed for answer in answers if answer.final is not None)
    assert value_of(one.app.metrics.gateway_numerics_changes) == told
    return told


async def test_streams_move_to_equal_numerics_while_there_are_any_and_else_say_so(tmp_path: Path) -> None:
    numerics = {"a": "x", "b": "y", "c": "x"}
    targets = [FakeTarget(name, pace_s=0.01, slots=24, numerics=one) for name, one in numerics.items()]
    async with harness(tmp_path, targets) as one:
        await ready(one, 3)
        tasks = await running(one, 12)
        elsewhere = len(targets[1].starts)
        await targets[0].die()
        answers = await asyncio.gather(*tasks)
        texts = [answer.tokens for answer in answers]
        assert value_of(one.app.metrics.gateway_migrations["lost"]) > 0
        assert (changes(one, answers), len(targets[1].starts)) == (0, elsewhere)
        tasks = await running(one, 12, among=targets[1:])
        moved = targets[2].active
        await targets[2].die()
        answers = await asyncio.gather(*tasks)
        assert [answer.tokens for answer in answers] == texts
        assert changes(one, answers) == moved > 0
