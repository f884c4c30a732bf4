"""A kind of drafter that is added is a folder found by its name: nothing else in the product has to know of it.

The folder of `tests/support/added_kinds` is put beside the real ones, as if it lay there: at most five files.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from services.common.model import ModelError, drafters
from services.common.model.drafters import read_drafter_spec
from services.drafter.proposers.build import build_proposer
from services.drafter.settings import DrafterSettings
from tests.lossless.rig import Rig, RigSettings
from tests.lossless.served import Served, dflash
from tests.support import added_kinds
from tests.support.tiny_checkpoints import TinyPair, TinyShape, write_configs, write_tiny
from tests.unit.target.core.specs import GREEDY, SAMPLED, prompt, request

SHAPE = TinyShape(vocab=256, context=256)
SETTINGS = RigSettings(dtype=torch.float64, width=4)
MOST_FILES = 5


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the kind, which the registry finds as it finds the others."""
    (place,) = added_kinds.__path__
    monkeypatch.setattr(drafters, "__path__", [*drafters.__path__, place])
    kinds = drafters._folders()
    monkeypatch.setattr(drafters, "KINDS", kinds)
    named = {each: name for name, kind in kinds.items() for each in kind.ARCHITECTURES}
    monkeypatch.setattr(drafters, "ARCHITECTURES", named)
    refused = {each: why for kind in kinds.values() for each, why in kind.REFUSED.items()}
    monkeypatch.setattr(drafters, "_REFUSED", refused)
    return Path(place) / "mirror"


@pytest.fixture
def pair(added: Path, tmp_path: Path) -> TinyPair:
    return write_tiny(tmp_path, 5, SHAPE, drafter={"architectures": ["MirrorDraftModel"]})


def test_it_is_few_files(added: Path) -> None:
    assert 1 <= len(list(added.rglob("*.py"))) <= MOST_FILES


def test_its_drafts_are_its_own_and_text_is_that_of_plain_decoding(pair: TinyPair) -> None:
    specs = [request(f"r{n}", prompt(n, 9 + 5 * n, SHAPE.vocab), 16, (GREEDY, SAMPLED)[n % 2]) for n in range(4)]
    with Rig(pair.target, pair.drafter, SETTINGS, dflash(pair.drafter)) as rig:
        drafted = rig.run(specs)
    with Rig(pair.target, pair.drafter, replace(SETTINGS, width=1)) as rig:
        plain = rig.run(specs)
    assert [one.tokens for one in drafted] == [one.tokens for one in plain]
    assert min(one.drafted for one in drafted) > 0


def test_the_drafters_process_serves_it_by_the_setting_for_all_kinds(pair: TinyPair) -> None:
    proposer = build_proposer(DrafterSettings(model=str(pair.drafter)))
    assert (proposer.kind, proposer.max_draft) == ("mirror", SHAPE.block_size - 1)
    with Rig(pair.target, pair.drafter, RigSettings(width=4), lambda rig: Served(rig, proposer)) as rig:
        (done,) = rig.run([request("r", prompt(1, 20, SHAPE.vocab), 8)])
    assert done.drafted > 0


def test_its_relatives_are_refused_with_its_remedy(added: Path, tmp_path: Path) -> None:
    for architecture, told in (("MirrorTwiceDraftModel", "two mirrors are not supported: take one"),
                               ("OtherDraftModel", "only .*'MirrorDraftModel'")):  # fmt: skip
        own = write_configs(tmp_path / architecture, SHAPE, drafter={"architectures": [architecture]})
        with pytest.raises(ModelError, match=told):
            read_drafter_spec(own.drafter)
