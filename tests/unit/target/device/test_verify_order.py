"""What a verify does behind its forward, in which order: a drafter is told of a round whose context is written."""

from typing import Any

import pytest

from services.target.device import verify
from services.target.device.verify import SideStream
from tests.lossless.pairs import made_up_pair
from tests.lossless.proposers import adversarial
from tests.lossless.rig import Rig, RigSettings
from tests.unit.target.core.specs import prompt, request


def test_a_round_is_published_when_it_is_committed_and_its_context_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The context may be written beside the commit, so it is awaited in between, and not before."""
    pair, done = made_up_pair(), list[str]()

    def noted(where: object, name: str, word: str) -> None:
        original = getattr(where, name)

        def call(*args: Any) -> Any:
            done.append(word)
            return original(*args)

        monkeypatch.setattr(where, name, call)

    spec = request("r", prompt(1, 9), 12)
    with Rig(pair.target, pair.drafter, RigSettings(width=4), adversarial({"r": list(spec.token_ids)}, seed=6)) as rig:
        noted(type(rig.runner.pool.context), "write", "write")
        noted(verify, "accept", "commit")
        noted(SideStream, "join", "join")
        noted(verify, "publish_slots", "publish")
        rig.run([spec])
    rounds = " ".join(done).removeprefix("write ").split(" publish")
    assert len(rounds) > 3
    assert set(rounds) - {""} == {"write commit join", " write commit join"}
