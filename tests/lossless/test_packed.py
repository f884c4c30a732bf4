"""The embedded pair says the same text for a burst whose prompts are packed as for each prompt alone (I1)."""

import random
from dataclasses import replace

import pytest
import torch

from deploy.stack import EMBEDDED
from services.target.core.request import RequestSpec
from tests.lossless.rig import Rig, RigSettings
from tests.lossless.served import dflash
from tests.unit.target.core.specs import GREEDY, SAMPLED, request

SETTINGS = RigSettings(width=4, slots=8, buckets=(1, 2, 4, 8), pack_tokens=128, blocks=200, prefix_cache=False)
REQUESTS, TOKENS, ALL = 4, 8, 48


def requests(count: int) -> list[RequestSpec]:
    """Prompts of 1 to 90 tokens, greedy and sampled in turn."""
    dice = random.Random(8)
    return [
        request(f"p{n}", dice.choices(range(2, 1000), k=dice.randint(1, 90)), TOKENS, (GREEDY, SAMPLED)[n % 2])
        for n in range(count)
    ]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mixed", [False, True], ids=["rows apart", "rows beside packs"])
def test_a_burst_says_what_its_prompts_say_alone(full: bool, mixed: bool) -> None:
    """With drafts in both, in packs of two to four prompts; no score of these prompts is near another."""
    specs, target, drafter = requests(ALL if full else REQUESTS), EMBEDDED / "target", EMBEDDED / "drafter"
    for dtype in (torch.float32, torch.float64) if full else (torch.float32,):
        with Rig(target, drafter, replace(SETTINGS, dtype=dtype, mixed=mixed), dflash(drafter)) as rig:
            together = [done.tokens for done in rig.run(specs)]
            alone = [rig.run([replace(spec, request_id=f"{spec.request_id}-alone")])[0].tokens for spec in specs]
        assert together == alone
