"""Tests that start a Ray stay in one process, those of `make test-deploy` too."""

import re
from pathlib import Path

from tests.support.cases import each
from tests.support.parallel import RAY, company, rank

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = sorted((ROOT / "tests/deploy/full").glob("test_*.py"))
STARTS = re.compile(
    r'\brunning\(|"deploy\.cluster"|"serve"|"tests\.integration\.deploy\.ray_pairs"|"tests\.bench\.gpu\.exact"'
)


@each("path", DEPLOY)
def test_a_file_that_starts_a_ray_is_of_their_company_and_begins_first(path: Path) -> None:
    name = path.relative_to(ROOT).as_posix()
    starts = bool(STARTS.search(path.read_text()))
    assert (company(name, of_the_fleet=False) == RAY) == starts
    assert (rank(name) == 0) == starts


def test_some_do_and_some_do_not() -> None:
    assert len({company(path.relative_to(ROOT).as_posix(), of_the_fleet=False) for path in DEPLOY}) >= 10
    assert sum(bool(STARTS.search(path.read_text())) for path in DEPLOY) >= 8
