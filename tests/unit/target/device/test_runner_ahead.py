"""Rounds that are launched before the last one is read give the text of rounds in turn (docs/adr/0010)."""

from dataclasses import replace

import pytest
import torch

from services.common.request.constraint import Rule, Thought
from services.common.request.grammar import Grammar
from services.common.request.sampling import SamplingParams
from services.target.core.request import RequestSpec
from tests.lossless.pairs import made_up_pair
from tests.lossless.proposers import adversarial
from tests.lossless.rig import Done, Rig, RigSettings
from tests.unit.target.core.specs import GREEDY, prompt, request

PENALISED = SamplingParams(repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.3, logit_bias=((5, 1.5),))


def requests() -> list[RequestSpec]:
    """More than there are slots, some with long prompts, some of one token."""
    return [
        request(
            f"r{n}", prompt(n, 1 + 31 * n % 150), 1 + 17 * n % 40, (GREEDY, PENALISED)[n % 2], logprobs=n % 3 or None
        )
        for n in range(14)
    ]


def said(done: Done) -> object:
    """Tokens, end and chosen log-probabilities of a request."""
    return done.tokens, done.end, [round(one.chosen, 6) for one in done.logprobs]


@pytest.mark.parametrize("preemption", [False, True])
@pytest.mark.parametrize("look_ahead", [1, 2])
def test_text_is_that_of_rounds_in_turn(look_ahead: int, preemption: bool) -> None:
    pair, specs = made_up_pair(), requests()
    with Rig(pair.target, pair.drafter, RigSettings(dtype=torch.float64)) as rig:
        wanted = rig.run(specs)
    truth = {spec.request_id: [*spec.token_ids, *done.tokens] for spec, done in zip(specs, wanted, strict=True)}
    settings = RigSettings(dtype=torch.float64, width=4, blocks=30, look_ahead=look_ahead, preemption=preemption)
    with Rig(pair.target, pair.drafter, settings, adversarial(truth, seed=5)) as rig:
        assert [said(done) for done in rig.run(specs)] == [said(done) for done in wanted]


@pytest.mark.parametrize("budget", [None, 10_000])
def test_rounds_that_no_mask_rules_are_not_landed_before_the_next_one(budget: int | None) -> None:
    """Without a rule, or where it is far: else a GPU stands idle while the host reads a round and plans the next."""
    pair, specs = made_up_pair(), [request(f"r{n}", prompt(n, 9), 24) for n in range(3)]
    if budget is not None:
        far = Grammar(Rule(thought=Thought(60, 61, True, budget, (61,))), None, frozenset({0}))
        specs[1] = replace(specs[1], grammar=far)
    with Rig(pair.target, pair.drafter, RigSettings(look_ahead=1)) as rig:
        for spec in specs:
            rig.submit(spec)
        ruled = list[bool]()
        while rig.step():
            ruled += [output.ruled for _, output in rig._flights]
    assert len(ruled) > 20
    assert not any(ruled[2:]), "a rule is watched for one round"
