"""Prompts packed into one forward give the text of prompts computed one by one (I1)."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from services.common.kernels.accept import SlotState
from services.common.model import Target
from services.common.model.states.states import Rows
from services.common.pair import attach
from services.common.request.sampling import FinishReason
from services.target.cache.manager import KVCacheManager
from services.target.core.plan import Outcome
from services.target.core.request import Request, RequestSpec, State
from services.target.device.outputs import RoundOutput
from services.target.device.packing import Pack
from services.target.device.runner import Runner
from services.target.device.steps import Steps
from tests.lossless.pairs import made_up_pair
from tests.lossless.proposers import perfect
from tests.lossless.rig import Done, ProposerFactory, Rig, RigSettings
from tests.unit.target.core.specs import GREEDY, PROCESSED, SAMPLED, prompt, request

FLOAT64 = RigSettings(dtype=torch.float64, slots=8, buckets=(1, 2, 4, 8), blocks=160)
ALONE = replace(FLOAT64, slots=1, buckets=(1,))


def burst(count: int = 8, tokens: int = 12) -> list[RequestSpec]:
    """Prompts of 1 to 90 tokens, every kind of sampling, some with log-probabilities."""
    kinds = (GREEDY, SAMPLED, PROCESSED)
    lengths = (5, 16, 17, 1, 90, 33, 64, 40)
    return [
        request(f"p{i}", prompt(70 + i, lengths[i % 8]), tokens, kinds[i % 3], logprobs=i % 2 or None)
        for i in range(count)
    ]


def run(settings: RigSettings, specs: Sequence[RequestSpec], propose: ProposerFactory | None = None) -> list[Done]:
    pair = made_up_pair()
    with Rig(pair.target, pair.drafter, settings, propose) as rig:
        return rig.run(specs)


@cache
def alone(count: int = 8, tokens: int = 12, dtype: torch.dtype = torch.float64) -> list[Done]:
    """The same requests one by one."""
    return run(replace(ALONE, dtype=dtype), burst(count, tokens))


def said(done: Sequence[Done]) -> list[object]:
    return [(one.tokens, one.end, [round(entry.chosen, 8) for entry in one.logprobs]) for one in done]


def test_text_is_that_of_prompts_one_by_one() -> None:
    specs = burst()
    assert said(run(FLOAT64, specs)) == said(alone())
    truth = {spec.request_id: [*spec.token_ids, *done.tokens] for spec, done in zip(specs, alone(), strict=True)}
    assert [one.tokens for one in run(replace(FLOAT64, width=4), specs, perfect(truth))] == [
        one.tokens for one in alone()
    ]


def test_text_is_that_of_prompts_one_by_one_where_packs_are_as_served() -> None:
    """In float32, where a width of its own for each pack orders the library's sums of attention otherwise."""
    specs = burst()
    settings = replace(FLOAT64, dtype=torch.float32)
    wide = run(replace(settings, pack_tokens=192), specs)
    assert [one.tokens for one in wide] == [one.tokens for one in alone(dtype=torch.float32)]


@pytest.mark.parametrize("width", [1, 4])
def test_text_is_the_same_where_rows_are_computed_beside_packs(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams that decode when a burst arrives get a token with each pack of it, drafts or none before and behind."""
    kinds = (GREEDY, SAMPLED, PROCESSED)
    streams = [request(f"s{i}", prompt(i, 9 + i), 40, kind) for i, kind in enumerate(kinds)]
    prompts = [request(f"m{i}", prompt(70 + i, 60 + i), 12, kinds[i % 3], logprobs=i % 2 or None) for i in range(5)]
    specs = [*streams, *prompts]
    beside: list[int] = []
    prefill = Steps.run_prefill

    def counted(steps: Steps, pack: Pack, rows: int = 0) -> None:
        beside.extend([rows] * (rows > 0))
        prefill(steps, pack, rows)

    apart, pair = run(ALONE, specs), made_up_pair()
    truth = {spec.request_id: [*spec.token_ids, *done.tokens] for spec, done in zip(specs, apart, strict=True)}
    settings = replace(FLOAT64, mixed=True, width=width)
    with Rig(pair.target, pair.drafter, settings, perfect(truth) if width > 1 else None) as rig:
        monkeypatch.setattr(Steps, "run_prefill", counted)
        for spec in streams:
            rig.submit(spec)
        for _ in range(4):
            rig.step()
        rig.run(prompts)
        assert len(beside) >= 4 and min(beside) >= 3, "every stream had a row beside packs"
        done = [rig.done[spec.request_id] for spec in specs]
    assert said(done) == said(apart)


def test_the_time_of_rows_beside_a_pack_counts_as_that_of_a_verify(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of prompts alone have none."""
    seen, land, pair = set[tuple[bool, bool]](), RoundOutput.land, made_up_pair()

    def noted(output: RoundOutput) -> tuple[Outcome, ...]:
        outcomes = land(output)
        seen.add((output.decodes, output.verify_us > 0))
        return outcomes

    monkeypatch.setattr(RoundOutput, "land", noted)
    with Rig(pair.target, pair.drafter, replace(FLOAT64, mixed=True)) as rig:
        for index in range(5):
            rig.submit(request(f"t{index}", prompt(index, 60), 12))
        for _ in range(4):
            rig.step()
    assert seen == {(False, False), (True, True)}


def test_first_tokens_of_a_burst_come_in_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """One forward and one head product for all, where each prompt took one of each."""
    rows: list[int] = []
    heads: list[int] = []
    forward, logits = Target.forward, Target.logits

    def watched(model: Target, ids_T: torch.Tensor, spans: Rows, *rest: Any) -> Any:
        rows.append(len(ids_T))
        return forward(model, ids_T, spans, *rest)

    def counted(model: Target, hidden: torch.Tensor, *rest: Any) -> Any:
        heads.append(len(hidden))
        return logits(model, hidden, *rest)

    pair = made_up_pair()
    with Rig(pair.target, pair.drafter, replace(FLOAT64, pack_tokens=128)) as rig:
        monkeypatch.setattr(Target, "forward", watched)
        monkeypatch.setattr(Target, "logits", counted)
        done = rig.run([request(f"s{i}", prompt(i, 9 + i), 1) for i in range(8)])
        assert (rows, heads) == ([8 * 16], [8])
        assert all(len(one.tokens) == 1 for one in done)


def test_prompts_start_before_their_slots_are_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []

    def noted(owner: type, name: str) -> None:
        inner = getattr(owner, name)

        def outer(*given: Any) -> Any:
            log.append(name)
            return inner(*given)

        monkeypatch.setattr(owner, name, outer)

    for owner, name in ((Runner, "prepare"), (Steps, "run_prefill"), (SlotState, "admit")):
        noted(owner, name)
    assert said(run(FLOAT64, burst())) == said(alone())
    served = log[log.index("prepare") :]
    assert served.index("run_prefill") < served.index("admit")


def test_prefix_hits_of_several_lengths_share_a_pack() -> None:
    stem = prompt(5, 48)
    specs = [request(f"h{i}", (*stem[: 16 * i], *prompt(90 + i, 20)), 8) for i in range(4)]
    apart = run(ALONE, specs)
    pair = made_up_pair()
    with Rig(pair.target, pair.drafter, replace(FLOAT64, pack_tokens=128)) as rig:
        rig.run([request("stem", (*stem, 3), 2)])
        done = rig.run(specs)
        assert rig.cache is not None and rig.cache.hit_tokens == 16 + 32 + 48
    assert said(done) == said(apart)


def test_a_request_cancelled_between_two_packs_leaves_the_others_alone() -> None:
    """Its slot goes to another while the rest of its prompt was still to come."""
    specs = burst(8)
    wanted = {spec.request_id: done.tokens for spec, done in zip(specs, alone(), strict=True)}
    pair = made_up_pair()
    with Rig(pair.target, pair.drafter, replace(FLOAT64, slots=7)) as rig:
        for spec in specs:
            rig.submit(spec)
        rig.step()
        rig.step()
        long = next(one for one in rig.scheduler.live() if one.spec.request_id == "p4")
        assert 0 < long.computed < len(long.tokens), "a pack ended inside its prompt"
        rig.scheduler.cancel(long.uid, 0.0, FinishReason.CANCELLED)
        while rig.step():
            pass
        assert {name: rig.done[name].tokens for name in wanted if name != "p4"} == {
            name: tokens for name, tokens in wanted.items() if name != "p4"
        }


def test_a_request_preempted_between_two_packs_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams that grow take the blocks of a prompt that is half computed, beside a short one in its packs."""
    halves: list[int] = []
    leave = KVCacheManager.release

    def watched(memory: KVCacheManager, request: Request, number: int) -> None:
        if request.state is State.PREFILL:
            halves.append(request.computed)
        leave(memory, request, number)

    streams = [request(f"s{i}", prompt(i, 10 + i), 90, SAMPLED) for i in range(3)]
    prompts = [request("short", prompt(9, 20), 12), request("long", prompt(8, 150), 12)]
    apart = run(ALONE, [*streams, *prompts])
    truth = {s.request_id: [*s.token_ids, *one.tokens] for s, one in zip([*streams, *prompts], apart, strict=True)}
    settings = replace(FLOAT64, width=8, blocks=24, pack_tokens=32, preemption=True, prefix_cache=False)
    pair = made_up_pair()
    with Rig(pair.target, pair.drafter, settings, perfect(truth)) as rig:
        monkeypatch.setattr(KVCacheManager, "release", watched)
        for spec in streams:
            rig.submit(spec)
        for _ in range(4):
            rig.step()
        done = rig.run(prompts)
        assert any(0 < computed < 150 for computed in halves)
        assert [rig.done[spec.request_id].tokens for spec in streams] == [one.tokens for one in apart[:3]]
    assert [one.tokens for one in done] == [one.tokens for one in apart[3:]]


def test_neighbours_in_a_pack_never_reach_a_prompt() -> None:
    """Blocks of all others and the pad block hold NaN until their prompts are written."""
    specs = burst()
    pair = made_up_pair()
    with Rig(pair.target, pair.drafter, FLOAT64) as rig:
        for spec in specs:
            rig.submit(spec)
        for pool in (*rig.runner.pool.states.tensors, rig.arena.tensor(attach.DRAFT_KV)):
            pool.fill_(float("nan"))
        rig.runner.steps.pack.hidden_FD.fill_(float("nan"))
        while rig.step():
            pass
        assert said([rig.done[spec.request_id] for spec in specs]) == said(alone())


def test_a_prompt_that_is_not_finite_ends_alone() -> None:
    """Half of it lies in K/V, which is spoilt; the rest of it shares its packs with others."""
    specs, pair = burst(), made_up_pair()
    with Rig(pair.target, pair.drafter, FLOAT64) as rig:
        for spec in specs:
            rig.submit(spec)
        rig.step()
        rig.step()
        half = next(one for one in rig.scheduler.live() if 0 < one.computed < one.prefill_to)
        rig.runner.pool.states.tensors[0][:, :, half.blocks] = float("nan")
        while rig.step():
            pass
        for spec, one in zip(specs, alone(), strict=True):
            done = rig.done[spec.request_id]
            if spec is half.spec:
                assert (done.tokens, done.end) == ([], FinishReason.ERROR)
            else:
                assert said([done]) == said([one])
