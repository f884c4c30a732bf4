"""Rounds that are launched before the last one is read give the text of rounds in turn (docs/adr/0010)."""

import pytest
import torch

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
