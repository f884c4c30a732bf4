"""What a target tells of its context where the memory holds less than the model's positions."""

import pytest

from services.target.build_device import Worker, build_worker
from services.target.settings import TargetSettings
from tests.lossless.pairs import made_up_pair
from tests.unit.target.core.specs import request


def built(blocks: int, limit: int) -> Worker:
    model = str(made_up_pair().target)
    settings = TargetSettings(model=model, drafter_model="none", slots=1, blocks=blocks, context_limit=limit)
    return build_worker(settings, 0)


@pytest.mark.parametrize(("blocks", "served"), [(2, 32), (4, 64), (9, 64)])
def test_a_request_for_the_whole_context_runs_in_whatever_the_pool_holds(blocks: int, served: int) -> None:
    """A chat of OpenAI's clients states no limit, so it asks for all that there is."""
    worker = built(blocks, 64)
    assert worker.model.context_limit == served
    asked = worker.scheduler.add(request("a", (2, 3), tokens=1 << 20), None, 0.0)
    assert asked.limit == served
    worker.close()
