"""`python -m tests.mutants.one NAME`: runs the test that must kill a mutant, with the bug in place."""

import sys
from pathlib import Path

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutation import NotApplicableError, check, install

QUIET = ["-x", "-q", "--no-header", "-p", "no:cacheprovider"]

NOT_APPLICABLE = 9


def main(name: str) -> int:
    """Returns pytest's exit status: 1 when the test failed, which is what a seeded bug must bring about."""
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    try:
        check(mutant, Path.cwd())
    except NotApplicableError as moved:
        print(moved, file=sys.stderr)
        return NOT_APPLICABLE
    install(mutant)
    return int(pytest.main([*QUIET, mutant.killed_by]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
