"""The embedded pair says the same text where some rows are left out of each round (I1)."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from deploy.stack import EMBEDDED
from services.target.scheduling.width.policy import FixedWidth
from tests.lossless.rig import Rig
from tests.lossless.served import dflash
from tests.lossless.test_packed import SETTINGS, requests

TOKENS = 24


def test_rows_that_take_turns_say_what_they_say_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven streams in rounds of four, and drafts for those alone that a round has."""
    left_out = 0

    def fitting(policy: FixedWidth, buckets: Sequence[int], rows: int, context: int = 0) -> int:
        nonlocal left_out
        fits = max((bucket for bucket in buckets if bucket < rows), default=rows)
        left_out += rows - fits
        return fits

    specs = [replace(spec, stopping=replace(spec.stopping, max_tokens=TOKENS)) for spec in requests(7)]
    drafter = EMBEDDED / "drafter"
    with Rig(EMBEDDED / "target", drafter, SETTINGS, dflash(drafter)) as rig:
        alone = [rig.run([replace(spec, request_id=f"{spec.request_id}-alone")])[0].tokens for spec in specs]
        monkeypatch.setattr(FixedWidth, "fitting", fitting)
        together = [done.tokens for done in rig.run(specs)]
    assert left_out > 0
    assert together == alone
