"""Drafts that make the target's noise of its seeds, as on a GPU, are those that read it, of all kinds."""

from dataclasses import replace
from pathlib import Path

import pytest

from services.common.model.drafters import KINDS, coupling
from tests.lossless.rig import Done, ProposerFactory, Rig, RigSettings
from tests.lossless.served import chained, dflash
from tests.lossless.test_served_tau import TARGET, asked, drafter_of

CHAINS = RigSettings(width=6, slots=4, buckets=(1, 2, 4), context_limit=256)
TREES = replace(CHAINS, width=8, nodes=True, between=6, blocks=128)
CASES = {
    "dflash": (dflash, CHAINS), "dflash2": (dflash, CHAINS), "eagle3": (chained, CHAINS),
    "trees of dflash": (dflash, TREES), "trees of dflash2": (dflash, TREES),
}  # fmt: skip


def _served(drafter: Path, settings: RigSettings, make: ProposerFactory) -> list[Done]:
    with Rig(TARGET, drafter, settings, make) as rig:
        return rig.run(asked(2))


@pytest.mark.parametrize("case", CASES)
def test_seeds_draft_as_noise_does(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coupling, "SEEDED", tuple(KINDS))
    make, settings = CASES[case]
    drafter = drafter_of(case.split()[-1])
    held = _served(drafter, settings, make(drafter))
    seeded = _served(drafter, replace(settings, seeded=True), make(drafter))
    for one, other in zip(held, seeded, strict=True):
        assert (one.tokens, one.rounds, one.accepted) == (other.tokens, other.rounds, other.accepted)
