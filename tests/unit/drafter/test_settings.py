"""Settings that cannot run are refused by name; a checkpoint that cannot be used ends the drafter."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from services.common.model import ModelError
from services.drafter.app import DrafterApp
from services.drafter.settings import DrafterSettings
from tests.support.cases import each


@each(
    ("values", "name"),
    [
        ({"proposer": "dflash"}, "model"),
        ({"proposer": "eagle"}, "proposer"),
        ({"proposer": "ngram", "dtype": "int8"}, "dtype"),
        ({"proposer": "ngram", "weights": "int4"}, "weights"),
        ({"proposer": "ngram", "ngram_min": 5}, "ngram_min"),
        ({"proposer": "ngram", "lookup_from": 17}, "lookup_from"),
        ({"proposer": "ngram", "pace_timeout_s": float("nan")}, "pace_timeout_s"),
        ({"proposer": "ngram", "threads": -1}, "threads"),
        ({"proposer": "ngram", "tls_cert": "c.pem"}, "tls_cert"),
        ({"proposer": "ngram", "tls_ca": "ca.pem"}, "tls_cert"),
        ({"proposer": "ngram", "grpc": "127.0.0.1:0"}, "grpc"),
        ({"proposer": "ngram", "grpc": "0.0.0.0:1", "tls_cert": "c.pem", "tls_key": "k.pem"}, "grpc"),
    ],
)
def test_a_combination_that_cannot_run_is_refused(values: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        DrafterSettings(**values)


async def test_a_missing_checkpoint_is_fatal_and_never_ready(tmp_path: Path) -> None:
    app = DrafterApp(DrafterSettings(model=str(tmp_path / "absent")))
    await app.start()
    assert app.fatal is not None
    with pytest.raises(ModelError):
        await asyncio.wait_for(app.fatal, 40)
    assert not app.ready
    await app.drain()
