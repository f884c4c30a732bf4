"""The runner gives the model's own tokens, whatever the drafts and the batch neighbours (I1, I3, I6)."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from services.common.model import Target
from services.common.model.states.states import Rows
from services.common.pair import attach
from services.common.request.sampling import SamplingParams, SpeculationParams
from services.target.core.plan import Plan
from services.target.core.request import RequestSpec
from tests.lossless.pairs import made_up_pair
from tests.lossless.proposers import adversarial, perfect
from tests.lossless.rig import Done, ProposerFactory, Rig, RigSettings
from tests.unit.target.core.specs import GREEDY, PROCESSED, SAMPLED, prompt, request

FLOAT64 = RigSettings(dtype=torch.float64)
SAMPLINGS = {"greedy": GREEDY, "sampled": SAMPLED, "processed": PROCESSED}


def run(settings: RigSettings, specs: list[RequestSpec], propose: ProposerFactory | None = None) -> list[Done]:
    pair = made_up_pair()
    with Rig(pair.target, pair.drafter, settings, propose) as rig:
        return rig.run(specs)


def truth_of(specs: list[RequestSpec], done: list[Done]) -> dict[str, list[int]]:
    return {spec.request_id: [*spec.token_ids, *got.tokens] for spec, got in zip(specs, done, strict=True)}


def test_greedy_equals_transformers() -> None:
    pair = made_up_pair()
    ids = prompt(5, 23)
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(pair.target, dtype=torch.float64)
    model.generation_config.eos_token_id = None
    out = model.generate(torch.tensor([ids]), max_new_tokens=40, do_sample=False, use_cache=True)
    assert run(FLOAT64, [request("a", ids, 40)])[0].tokens == out[0, len(ids) :].tolist()


@pytest.mark.parametrize("name", SAMPLINGS)
@pytest.mark.parametrize("width", [4, 8])
def test_speculation_changes_nothing(name: str, width: int) -> None:
    specs = [request(f"r{i}", prompt(i, 5 + 9 * i), 30, SAMPLINGS[name]) for i in range(4)]
    plain = run(replace(FLOAT64, slots=1, buckets=(1,)), specs)
    truth = truth_of(specs, plain)
    right = run(replace(FLOAT64, width=width), specs, perfect(truth))
    wrong = run(replace(FLOAT64, width=width), specs, adversarial(truth, seed=4))
    assert [done.tokens for done in right] == [done.tokens for done in wrong] == [done.tokens for done in plain]
    assert all(done.accepted >= 20 and done.rounds <= 29 // width + 2 for done in right)
    assert all(done.accepted < done.drafted for done in wrong)


def test_neighbours_change_nothing() -> None:
    lives = enumerate((PROCESSED, GREEDY, SAMPLED))
    specs = [request(f"r{i}", prompt(40 + i, 3 + 11 * i), 28 - 7 * i, sampling) for i, sampling in lives]
    alone = [run(replace(FLOAT64, width=1), [spec])[0].tokens for spec in specs]
    pair = made_up_pair()
    with Rig(pair.target, pair.drafter, FLOAT64) as rig:
        for spec in specs:
            rig.submit(spec)
            for _ in range(4):
                rig.step()
        while rig.step():
            pass
        assert [rig.done[spec.request_id].tokens for spec in specs] == alone


def test_a_row_that_wants_no_drafts_gets_none() -> None:
    ids = prompt(9, 12)
    specs = [
        request("off", ids, 20, speculation=SpeculationParams(off=True)),
        request("two", ids, 20, speculation=SpeculationParams(max_draft=2)),
        request("all", ids, 20),
    ]
    plain = run(FLOAT64, specs)
    done = run(replace(FLOAT64, width=8), specs, perfect(truth_of(specs, plain)))
    assert [d.tokens for d in done] == [d.tokens for d in plain]
    assert (done[0].drafted, done[0].rounds) == (0, 19)
    assert done[1].accepted == 2 * 6 and done[1].rounds == 7
    assert done[2].rounds == 3


def test_poisoned_free_memory_is_never_read() -> None:
    specs = [request(f"r{i}", prompt(60 + i, 10 + 13 * i), 20, SAMPLED) for i in range(3)]
    plain = run(FLOAT64, specs)
    pair = made_up_pair()
    with Rig(pair.target, pair.drafter, replace(FLOAT64, width=4), perfect(truth_of(specs, plain))) as rig:
        for spec in specs:
            rig.submit(spec)
        poison(rig, everything=True)
        while rig.step():
            poison(rig, everything=False)
        assert [rig.done[spec.request_id].tokens for spec in specs] == [done.tokens for done in plain]


def poison(rig: Rig, *, everything: bool) -> None:
    """Fills the pad block, and before the first round every block, with NaN."""
    blocks = slice(None) if everything else slice(0, 1)
    for pool in (*rig.runner.pool.states.tensors, rig.arena.tensor(attach.DRAFT_KV)):
        pool[:, :, blocks] = float("nan")


def test_a_late_drafter_costs_speed_only() -> None:
    class Late:
        def draft(self, plan: Plan) -> bool:
            return False

    specs = [request("a", prompt(3, 20), 20, SamplingParams(temperature=0.7, seed=3))]
    plain = run(FLOAT64, specs)
    late = run(replace(FLOAT64, width=8), specs, lambda rig: Late())
    assert late[0].tokens == plain[0].tokens
    assert late[0].drafted == 0


def test_one_forward_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = made_up_pair()
    specs = [request(f"r{i}", prompt(i, 8), 16) for i in range(3)]
    spans: list[int] = []
    forward = Target.forward

    def counted(model: Target, ids_T: torch.Tensor, rows: Rows, *rest: Any) -> Any:
        spans.extend(part.span.width for part in rows.parts)
        return forward(model, ids_T, rows, *rest)

    with Rig(pair.target, pair.drafter, FLOAT64) as rig:
        monkeypatch.setattr(Target, "forward", counted)
        rig.run(specs)
        assert spans.count(1) == max(done.rounds for done in rig.done.values()) == 15
        assert len(spans) == 15 + 1, "all prompts fit one pack"


def test_a_slot_forgets_its_last_request() -> None:
    specs = [request(f"r{seed}", prompt(2, 9), 4, SamplingParams(temperature=1.0, seed=seed)) for seed in range(4)]
    one_slot = replace(FLOAT64, slots=1, buckets=(1,))
    alone = [run(one_slot, [spec])[0].tokens for spec in specs]
    assert len({tuple(tokens) for tokens in alone}) > 1
    assert [done.tokens for done in run(one_slot, specs)] == alone
