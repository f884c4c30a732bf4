"""Log-probabilities of prompts are those of one plain forward, whatever chunks, company and trouble it comes in."""

import random
from dataclasses import replace
from typing import Any

import pytest
import torch

from services.target.core.request import RequestSpec
from tests.lossless.gate import EOS, TIGHT, make_specs
from tests.lossless.oracle import Oracle
from tests.lossless.pairs import made_up_pair
from tests.lossless.proposers import perfect
from tests.lossless.rig import Done, Rig, RigSettings

SEED, VOCAB, TOKENS, ASKED = 4, 320, 24, 5


def specs_of(count: int, every: int = 1) -> list[RequestSpec]:
    """Requests of which each `every`th wants its prompt scored; the last are long and share their beginnings."""
    source = random.Random(SEED)
    found = make_specs(VOCAB, count, TOKENS, 0.0, SEED)
    long = tuple(source.randrange(2, VOCAB) for _ in range(150))
    for index in range(count - 3, count):
        ids = long[: 100 + 16 * (index - count + 3)]
        found[index] = replace(found[index], token_ids=ids, prompt_length=len(ids))
    return [replace(spec, prompt_logprobs=ASKED if not i % every else None) for i, spec in enumerate(found)]


def agrees(spec: RequestSpec, done: Done, log_TV: torch.Tensor, tolerance: float) -> None:
    """Every token of a prompt but the first has its score and the best of its position."""
    assert sorted(done.scores) == [*range(1, spec.prompt_length)]
    for position, (token, scored) in done.scores.items():
        assert token == spec.token_ids[position]
        log_V = log_TV[position - 1]
        assert scored.chosen == pytest.approx(float(log_V[token]), abs=tolerance)
        best = log_V.topk(ASKED)
        assert [value for _, value in scored.top] == pytest.approx(best.values.tolist(), abs=tolerance)
        assert [float(log_V[other]) for other, _ in scored.top] == pytest.approx(best.values.tolist(), abs=tolerance)


@torch.inference_mode()
def by_transformers(model: Any, spec: RequestSpec) -> torch.Tensor:
    logits_TV = model(torch.tensor([spec.token_ids])).logits[0]
    return torch.log_softmax(logits_TV, -1)


def by_one_forward(oracle: Oracle, spec: RequestSpec) -> torch.Tensor:
    return torch.log_softmax(oracle.logits(spec.token_ids), -1)


@pytest.mark.parametrize("family", ["qwen3", pytest.param("llama", marks=pytest.mark.whole)])
def test_scores_are_those_of_transformers(family: str) -> None:
    pair, specs = made_up_pair(family=family), specs_of(5)
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(pair.target, dtype=torch.float64)
    for dtype in (torch.float64, torch.float32):
        with Rig(pair.target, None, RigSettings(dtype=dtype, eos_ids=EOS)) as rig:
            for spec, done in zip(specs, rig.run(specs), strict=True):
                agrees(spec, done, by_transformers(model, spec), 1e-4)  # its angles are of float32


@pytest.mark.parametrize(
    ("family", "pack_tokens"),
    [
        ("qwen3", 16),
        ("qwen3_5", 64),
        pytest.param("qwen3", 64, marks=pytest.mark.whole),
        pytest.param("qwen3_5", 16, marks=pytest.mark.whole),
    ],
)
def test_scores_do_not_depend_on_chunks_hits_or_company(family: str, pack_tokens: int) -> None:
    pair, specs = made_up_pair(family=family), specs_of(8, every=2)
    plain = [replace(spec, prompt_logprobs=None) for spec in specs]
    oracle, settings = Oracle(pair.target), RigSettings(dtype=torch.float64, eos_ids=EOS, pack_tokens=pack_tokens)
    with Rig(pair.target, pair.drafter, settings) as rig:
        unscored = rig.run(plain)
        done = rig.run(specs)  # all of their blocks are in the prefix cache by now
        assert any(one.cached for one in done) and rig.cache is not None
        for spec, before, one in zip(specs, unscored, done, strict=True):
            assert (one.tokens, one.end) == (before.tokens, before.end)
            if spec.prompt_logprobs is None:
                assert not one.scores
            else:
                assert not one.cached
                agrees(spec, one, by_one_forward(oracle, spec), 1e-9)
        assert (rig.runner.graphs().recaptures, rig.runner.graphs().reallocations) == (0, 0)


def test_scores_and_texts_outlive_preemption_and_rounds_ahead() -> None:
    pair, specs = made_up_pair(), specs_of(6)
    oracle, settings = Oracle(pair.target), RigSettings(dtype=torch.float64, eos_ids=EOS)
    with Rig(pair.target, pair.drafter, settings) as rig:
        wanted = rig.run([replace(spec, prompt_logprobs=None) for spec in specs])
    truth = {spec.request_id: [*spec.token_ids, *done.tokens] for spec, done in zip(specs, wanted, strict=True)}
    strained = replace(settings, width=4, blocks=TIGHT, preemption=True, prefix_cache=False)
    for arm in (strained, replace(settings, width=4, look_ahead=1), replace(settings, mixed=True)):
        with Rig(pair.target, pair.drafter, arm, perfect(truth)) as rig:
            for spec, before, one in zip(specs, wanted, rig.run(specs), strict=True):
                assert (one.tokens, one.end) == (before.tokens, before.end)
                agrees(spec, one, by_one_forward(oracle, spec), 1e-9)


def test_a_prompt_of_one_token_has_no_scores_and_one_that_goes_on_elsewhere_has_them_already() -> None:
    pair, (spec, *_) = made_up_pair(), specs_of(4)
    with Rig(pair.target, None, RigSettings(dtype=torch.float64, eos_ids=EOS)) as rig:
        (alone,) = rig.run([replace(spec, token_ids=(5,), prompt_length=1)])
        assert len(alone.tokens) == TOKENS and not alone.scores
        (moved,) = rig.run([replace(spec, request_id="moved", token_ids=(*spec.token_ids, 7))])
        assert moved.tokens and not moved.scores
