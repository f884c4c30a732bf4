"""Every seeded bug still has its place in the source: one that does not would be found only when all of them run."""

from pathlib import Path

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutation import check

ROOT = Path(__file__).parents[3]


def test_each_seeded_bug_applies() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    for mutant in MUTANTS:
        check(mutant, ROOT)
