"""Short ways to write requests in the runner's tests."""

import random
from collections.abc import Sequence

from services.common.request.sampling import SamplingParams, SpeculationParams, StopParams
from services.target.core.request import RequestSpec

GREEDY = SamplingParams()
SAMPLED = SamplingParams(temperature=0.9, seed=0xFEDC_BA98_7654_3210)
PROCESSED = SamplingParams(
    temperature=0.8,
    top_p=0.9,
    top_k=40,
    min_p=0.02,
    seed=77,
    repetition_penalty=1.3,
    presence_penalty=0.4,
    frequency_penalty=0.3,
    logit_bias=((5, 1.5), (9, -4.0)),
)


def prompt(seed: int, length: int, vocab: int = 320) -> tuple[int, ...]:
    """Random token ids; neither the end of sequence (0) nor the mask (1)."""
    source = random.Random(seed)
    return tuple(source.randrange(2, vocab) for _ in range(length))


def request(
    name: str,
    token_ids: Sequence[int],
    tokens: int = 24,
    sampling: SamplingParams = GREEDY,
    *,
    stopping: StopParams | None = None,
    speculation: SpeculationParams = SpeculationParams(),
    logprobs: int | None = None,
    prompt_length: int | None = None,
) -> RequestSpec:
    """A request that generates `tokens` tokens unless `stopping` says otherwise."""
    return RequestSpec(
        request_id=name,
        token_ids=tuple(token_ids),
        prompt_length=len(token_ids) if prompt_length is None else prompt_length,
        sampling=sampling,
        stopping=stopping or StopParams(max_tokens=tokens, ignore_eos=True),
        speculation=speculation,
        logprobs=logprobs,
    )
