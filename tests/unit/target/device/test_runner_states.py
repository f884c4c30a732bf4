"""The states of sequences hear of every change of hands."""

import pytest

from services.common.model import Target
from services.common.model.states.state_sizes import Blocks
from services.common.model.states.states import SequenceStates
from services.common.pair import attach
from tests.lossless.pairs import made_up_pair
from tests.lossless.proposers import adversarial
from tests.lossless.rig import Rig, RigSettings
from tests.unit.target.core.specs import prompt, request


class Hands(SequenceStates):
    """Notes the slots that change hands."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.resets: list[int] = []

    def reset(self, slot: int) -> None:
        self.resets.append(slot)


def test_states_are_reset_for_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Target,
        "new_states",
        lambda model, blocks, size, *by_slot: Hands(
            model.spec, Blocks(blocks, size), model.dtype, model.device, *by_slot[:3]
        ),
    )
    pair = made_up_pair()
    truth: dict[str, list[int]] = {}
    settings = RigSettings(width=4, slots=2, buckets=(1, 2), prefix_cache=False)
    with Rig(pair.target, pair.drafter, settings, adversarial(truth, seed=6)) as rig:
        states = rig.runner.pool.states
        assert isinstance(states, Hands)
        for index in range(4):
            spec = request(f"r{index}", prompt(index, 20 + index), 12)
            truth[spec.request_id] = list(spec.token_ids)
            rig.submit(spec)
        while rig.step():
            pass
        assert sorted(states.resets) == [0, 0, 1, 1]


def test_a_pair_without_a_model_for_drafts_shares_and_writes_nothing() -> None:
    pair = made_up_pair()
    with Rig(pair.target, None, RigSettings(width=4)) as rig:
        pool = rig.runner.pool
        assert not any(name in rig.arena for name in (attach.EMBED, attach.DRAFT_KV))
        assert (pool.weights, pool.draft_kv.numel(), pool.context.taps) == (None, 0, ())
        assert len(rig.run([request("a", prompt(3, 20), 9)])[0].tokens) == 9
