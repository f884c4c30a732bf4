"""By wire the very same drafts are accepted as out of shared memory; lies cost acceptance only."""

import pytest

from tests.lossless.gate import Case, make_specs, run_case
from tests.lossless.pairs import made_up_pair

SEED = 20261


def accepted(proposer: str, truth: dict[str, list[int]] | None = None) -> tuple[int, int, list[list[int]]]:
    """Drafts offered and accepted, and the texts."""
    specs = make_specs(320, 3, 48, 0.0, SEED)
    width = 1 if proposer == "none" else 4
    done = run_case(made_up_pair(), Case("float64", 0.0, width, proposer, 4), specs, truth or {}, SEED)
    return sum(each.drafted for each in done), sum(each.accepted for each in done), [each.tokens for each in done]


@pytest.mark.parametrize(("proposer", "by_wire"), [("dflash", "wire-dflash"), ("ngram", "wire-ngram")])
def test_drafts_are_those_of_shared_memory(proposer: str, by_wire: str) -> None:
    drafted, *rest = accepted(proposer)
    assert drafted > 0
    assert accepted(by_wire) == (drafted, *rest)


def test_lies_are_partly_believed_and_never_said() -> None:
    specs = make_specs(320, 3, 48, 0.0, SEED)
    *_, texts = accepted("none")
    truth = {spec.request_id: [*spec.token_ids, *text] for spec, text in zip(specs, texts, strict=True)}
    drafted, taken, found = accepted("wire-adversarial", truth)
    assert found == texts
    assert 0 < taken < drafted, "some rows are right, some are not"
