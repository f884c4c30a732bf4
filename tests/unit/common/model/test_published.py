"""DFlash against numbers of the published code: github.com/z-lab/dflash at 44947fb, transformers 5.23, float32.

`long` is made for 64 positions and drafts in 208; `last` taps the last block; `slides` has windows of 12 positions and
YaRN in `rope_parameters`. All belong to one small random target. For `slides` that code was given the windows and the
scales of its later commits by hand.
"""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from services.common.model import DraftBlock, Target, load_block, load_target
from services.common.model.drafters.context import BlockContext, load_context
from tests.support.told import told
from tests.unit.common.model.pairs import block_ids, context_at, context_kv, forward, poisoned_states, span_at, tables

FOLDER = Path(__file__).parent / "published"
EXPECTED: dict[str, Any] = json.loads((FOLDER / "expected.json").read_text())
CASES = [(name, block["length"]) for name, case in EXPECTED.items() for block in case["blocks"]]
COLUMNS = 60


@pytest.fixture(scope="module")
def target() -> Target:
    return load_target(FOLDER / "target")


def drafter_of(name: str, target: Target) -> tuple[BlockContext, DraftBlock]:
    block = load_block(FOLDER / name)
    block.reach(target.spec.max_positions)
    return load_context(FOLDER / name, target), block


@pytest.mark.parametrize(("name", "length"), CASES)
def test_blocks_are_those_of_the_published_code(name: str, length: int, target: Target) -> None:
    (expected,) = (block for block in EXPECTED[name]["blocks"] if block["length"] == length)
    context, block = drafter_of(name, target)
    ids, table = torch.tensor([EXPECTED[name]["ids"][:length]]), tables([COLUMNS - 2], COLUMNS)
    span, kv = span_at(table, [0], length), poisoned_states(target, COLUMNS)
    draft_kv = context_kv(context, COLUMNS)
    features = forward(target, ids, span, kv, context.taps)[1]
    context.write(features.flatten(0, 1), span, draft_kv)
    own = context_at(table, [length], block.spec.block_size), draft_kv, target.embed_VD
    drafts = block_ids(block, torch.tensor([expected["anchor"]]))
    torch.testing.assert_close(block.hidden(drafts, *own)[0], torch.tensor(expected["hidden"]), atol=1e-4, rtol=1e-4)
    assert block.propose(drafts, *own, target.lm_head_VD)[0].tolist() == expected["proposed"]


def test_a_target_longer_than_its_drafter_is_told_once(target: Target, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        drafter_of("long", target)
    (record,) = told(caplog)
    assert "made for 64 positions, the target for 512" in record.getMessage()
    caplog.clear()
    drafter_of("last", target)
    assert not told(caplog)
