"""The source text of every seeded bug still exists; otherwise only a run of all mutants would tell."""

from pathlib import Path

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutation import check

ROOT = Path(__file__).parents[3]


def test_each_seeded_bug_applies() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    for mutant in MUTANTS:
        check(mutant, ROOT)


def test_each_killing_test_is_there() -> None:
    for mutant in MUTANTS:
        path, _, name = mutant.killed_by.partition("::")
        assert (ROOT / path).exists(), mutant.name
        assert not name or f"def {name}(" in (ROOT / path).read_text(), mutant.name
