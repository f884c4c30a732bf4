"""After warm-up nothing is captured or allocated anew, however requests come and go (I4); bad drafts change nothing."""

from dataclasses import fields, replace

import pytest
import torch

from services.common.pair import attach
from services.target.core.plan import Plan
from services.target.device.publish import Publisher
from tests.lossless.pairs import made_up_pair
from tests.lossless.proposers import Perfect, adversarial
from tests.lossless.rig import Rig, RigSettings
from tests.unit.target.core.specs import GREEDY, PROCESSED, SAMPLED, prompt, request

ROUNDS = 500


def addresses(rig: Rig) -> list[int]:
    """Where every static tensor of the runner is."""
    slots = rig.runner.pool.state.slots
    held = [value for field in fields(slots) if isinstance(value := getattr(slots, field.name), torch.Tensor)]
    return [tensor.data_ptr() for tensor in (*rig.runner.pool.tensors, *held)]


def test_500_rounds_capture_and_allocate_nothing() -> None:
    pair = made_up_pair()
    truth: dict[str, list[int]] = {}
    settings = RigSettings(width=4)
    with Rig(pair.target, pair.drafter, settings, adversarial(truth, seed=6)) as rig:
        before, places = rig.runner.graphs(), addresses(rig)
        count = 0
        while rig.rounds < ROUNDS:
            while len(rig.scheduler.live()) < 1 + count % 5:
                sampling = (GREEDY, SAMPLED, PROCESSED)[count % 3]
                spec = request(f"r{count}", prompt(count, 1 + 17 * count % 90), 3 + 13 * count % 60, sampling)
                truth[spec.request_id] = list(spec.token_ids)
                rig.submit(spec)
                count += 1
            rig.step()
        after = rig.runner.graphs()
        assert addresses(rig) == places
    assert (after.recaptures, after.reallocations) == (0, 0)
    assert after.captures == before.captures
    assert after.replays - before.replays >= ROUNDS


@pytest.mark.parametrize("preemption", [False, True])
def test_the_drafter_sees_what_was_committed(preemption: bool) -> None:
    class Watching(Perfect):
        """Checks what is published before each round."""

        seen = 0

        def draft(self, plan: Plan) -> bool:
            state = rig.runner.pool.state
            for slot in plan.rows:
                assert int(rig.arena.tensor(attach.EPOCH)[slot]) == int(state.epoch_S[slot])
                assert torch.equal(rig.arena.tensor(attach.BLOCK_TABLE)[slot], state.block_table_SN[slot])
                known = truth[rig.request_of_slot[slot]]
                length = int(rig.arena.tensor(attach.LENGTH)[slot])
                assert int(rig.arena.tensor(attach.ANCHOR)[slot]) == known[length]
                assert int(rig.arena.tensor(attach.HISTORY_LENGTH)[slot]) == length + 1
                assert rig.arena.tensor(attach.HISTORY)[slot, : length + 1].tolist() == known[: length + 1]
                Watching.seen += 1
            rows = rig.arena.tensor(attach.ROWS)[: plan.bucket].tolist()
            assert rows == [*plan.rows, *[rig.shapes.pad_slot] * (plan.bucket - len(plan.rows))]
            return super().draft(plan)

    pair = made_up_pair()
    specs = [request(f"r{i}", prompt(i, 20 + i), 20 + 10 * i) for i in range(3)]
    with Rig(pair.target, pair.drafter, RigSettings(dtype=torch.float64)) as plain:
        truth = {
            spec.request_id: [*spec.token_ids, *done.tokens] for spec, done in zip(specs, plain.run(specs), strict=True)
        }
    # The last one comes while another decodes: its seat and its row are news of different rounds.
    settings = RigSettings(dtype=torch.float64, width=4, slots=2, buckets=(1, 2), preemption=preemption)
    with Rig(pair.target, pair.drafter, settings, lambda rig: Watching(rig, truth)) as rig:
        rig.run(specs)
    assert Watching.seen >= 3 * 5


def test_a_round_like_the_one_before_publishes_nothing_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its verify has; only first rounds of a request, or rounds after one has gone, see new rows or seats."""
    published: list[int] = []
    publish = Publisher.publish

    def counted(publisher: Publisher) -> None:
        published.append(rig.rounds)
        publish(publisher)

    pair, spec = made_up_pair(), request("a", prompt(1, 20), 60)
    truth = {"a": list(spec.token_ids)}
    with Rig(pair.target, pair.drafter, RigSettings(width=4), adversarial(truth, seed=6)) as rig:
        monkeypatch.setattr(Publisher, "publish", counted)
        rig.run([spec])
        assert published == [1]
        assert rig.rounds > 15


def test_plain_rounds_keep_the_draft_context_complete() -> None:
    """A drafter that attaches late finds the same context as one that was there all the time (I5)."""
    pair = made_up_pair()
    spec = request("a", prompt(8, 30), 24)
    pools = []
    for width in (1, 8):
        settings = RigSettings(dtype=torch.float64, width=width, slots=1, buckets=(1,), prefix_cache=False)
        with Rig(pair.target, pair.drafter, replace(settings, width=1)) as plain:
            truth = {"a": [*spec.token_ids, *plain.run([spec])[0].tokens]}
        with Rig(pair.target, pair.drafter, settings, lambda rig, truth=truth: Perfect(rig, truth)) as rig:
            rig.run([spec])
            committed = len(spec.token_ids) + 23
            table = rig.runner.pool.state.block_table_SN[0].long()
            flat = rig.arena.tensor(attach.DRAFT_KV)[:, :, table].flatten(2, 3)
            pools.append(flat[:, :, :committed].clone())
    assert bool((pools[0].abs().amax((0, 1, 3, 4)) > 0).all())
    assert torch.allclose(pools[0], pools[1], atol=1e-9)
