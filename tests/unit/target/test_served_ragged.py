"""Where a target serves chains of any lengths, and where all chains of a round have one length and a line says why."""

import logging

import pytest

from services.target.build_device import Worker, build_worker
from services.target.core.width import Ragged
from services.target.settings import TargetSettings
from tests.lossless.pairs import made_up_pair


def built(family: str = "qwen3", **settings: object) -> Worker:
    pair = made_up_pair(family=family)
    sizes = {"slots": 4, "blocks": 40, "context_limit": 64, "drafter_address": "unix:/nowhere", "widths": (1, 4, 8)}
    told = {"model": str(pair.target), "drafter_model": str(pair.drafter), "ragged": True, **sizes, **settings}
    return build_worker(TargetSettings(**told), 0)  # type: ignore[arg-type]


def test_rounds_of_any_lengths_have_as_many_rows_as_rounds_of_chains() -> None:
    worker = built()
    assert worker.runner.pool.settings.ragged == (Ragged(8, 16, 2),)
    assert worker.terms.widths == (4, 8)
    captured = worker.graphs.captures
    worker.close()
    alone = built(ragged=False)
    assert captured - alone.graphs.captures == 2, "one for each mode"
    assert not alone.runner.pool.settings.ragged
    alone.close()


@pytest.mark.parametrize(
    ("family", "settings", "why"),
    [
        ("qwen3_5", {}, "the model has recurrent layers"),
        ("qwen3", {"nodes": True}, "drafts may be trees"),
        ("qwen3", {"adaptive": False}, "widths are fixed"),
        ("qwen3", {"slots": 1}, "there are too few slots or widths"),
    ],
)
def test_where_chains_cannot_differ_a_line_says_why(
    family: str, settings: dict[str, object], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        worker = built(family, **settings)
    assert not worker.runner.pool.settings.ragged
    assert [getattr(record, "why", None) for record in caplog.records if "one length" in record.message] == [why]
    worker.close()
