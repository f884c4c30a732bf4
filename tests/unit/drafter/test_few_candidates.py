"""Among how many tokens a served DSpark chooses by the token before: as many as it is told, else sixteen."""

from pathlib import Path

import pytest

from services.common.model.drafters.dspark.markov import MarkovHead
from services.drafter.proposers.build import build_proposer
from services.drafter.settings import DrafterSettings
from tests.support.tiny_checkpoints import DRAFTERS, TinyShape, write_tiny


def test_a_bias_looks_at_sixteen_tokens_unless_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair, seen = write_tiny(tmp_path, 3, TinyShape(), drafter=DRAFTERS["dspark"]), list[int]()
    monkeypatch.setattr(MarkovHead, "narrow", lambda _, candidates: seen.append(candidates))
    model = str(pair.drafter)
    for settings in (
        DrafterSettings(model=model),
        *(DrafterSettings(model=model, markov_candidates=n) for n in (0, 3)),
    ):
        build_proposer(settings)
    assert seen == [16, 3]
