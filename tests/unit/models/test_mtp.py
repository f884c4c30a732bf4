"""What trains a drafting head computes what is served, step by step; and the trained one follows its features."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from models.training.export import write_target
from models.training.mtp import Head, published_target, save
from models.training.mtp_tau import Written, accepted, trained_head
from models.training.network import rotation_at
from models.training.settings import MODELS, PRESETS, Delta, Shape
from models.training.target import Target
from services.common.model import Target as ServedTarget
from services.common.model import load_target
from tests.lossless.rig import Rig, RigSettings
from tests.lossless.served import chained
from tests.unit.common.model.pairs import BLOCK_SIZE, forward, span_at, tables
from tests.unit.common.model.plain_chains import PlainMtp
from tests.unit.target.core.specs import request

SHAPE = Shape(
    vocab_size=96, hidden_size=32, intermediate_size=48, num_layers=4, num_heads=4, head_dim=16,
    delta=Delta(k_dim=16, v_dim=16),
)  # fmt: skip
LENGTH, STEPS = 14, 3


def test_each_step_is_that_of_a_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of step i is the i-th of the chain that begins i - 1 rows before, given the text's tokens."""
    torch.manual_seed(0)
    target, head = Target(SHAPE).requires_grad_(False), Head(SHAPE)
    for weight in (*target.parameters(), *head.parameters()):
        weight.data = (weight.data + 0.1 * torch.randn_like(weight)).bfloat16().float()
    write_target(SHAPE, target, tmp_path)
    save(head, tmp_path)
    ids = torch.randint(2, SHAPE.vocab_size, (1, LENGTH + STEPS))
    rows, served = span_at(tables([8], 8), [0], LENGTH + STEPS), load_target(tmp_path, torch.float64)
    states: Tensor = forward(served, ids, rows, served.new_states(9, BLOCK_SIZE), (SHAPE.num_layers - 1,))[1]
    with torch.no_grad():
        rotation = rotation_at(torch.arange(1, LENGTH + STEPS), SHAPE)
        embedded = F.embedding(ids[:, 1:], target.model.embed_tokens.weight)
        got = head.steps(embedded, states[:, :-1].float(), rotation, STEPS)
    told = iter(ids[0, LENGTH:].tolist())
    monkeypatch.setattr(PlainMtp, "token", lambda *_: next(told))
    plain = PlainMtp(tmp_path, torch.float64)
    _, expected = plain.drafts(
        ids[0, :LENGTH].tolist(), states[0, : LENGTH - 1], served.embed_VD, served.embed_VD, STEPS
    )
    for step, hidden in enumerate(expected):
        torch.testing.assert_close(got[step][0, LENGTH - 2 + step].double(), hidden, atol=1e-4, rtol=1e-4)


HYBRID = PRESETS["hybrid"].out / "target"
PROMPTS, TOKENS, DRAFTS = 4, 40, 3


def test_served_rounds_are_those_measured_offline_and_follow_the_features(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within 2 % of the rounds: a near tie may fall otherwise. The control has the states of other places."""
    prompts: list[str] = json.loads((MODELS / "embedded" / "heldout_prompts.json").read_text(encoding="utf-8"))
    tokenizer = Tokenizer.from_file(str(HYBRID / "tokenizer.json"))
    encoded = [encoding.ids for encoding in tokenizer.encode_batch(prompts[:PROMPTS])]
    settings = RigSettings(width=DRAFTS + 1, context_limit=128, prefix_cache=False)
    with Rig(HYBRID, HYBRID, settings, chained(HYBRID)) as rig:
        done = rig.run([request(f"r{row}", ids, TOKENS) for row, ids in enumerate(encoded)])
        offline = sum(_rounds(rig.model, [*ids, *one.tokens], len(ids)) for ids, one in zip(encoded, done, strict=True))
        seen: list[Tensor] = []
        monkeypatch.setattr(rig.context, "_fuse", lambda states_TD: _of_other_places(states_TD, seen))
        blind = rig.run([request(f"b{row}", ids, TOKENS) for row, ids in enumerate(encoded)])
    rounds, blind_rounds = (sum(one.rounds for one in each) for each in (done, blind))
    assert [one.tokens for one in blind] == [one.tokens for one in done]
    assert rounds == pytest.approx(offline, rel=0.02)
    assert PROMPTS * (TOKENS - 1) / rounds > 1.5
    assert blind_rounds > 1.15 * rounds


def _of_other_places(states_TD: Tensor, seen: list[Tensor]) -> Tensor:
    seen.append(states_TD)
    known = torch.cat(seen)
    return known[torch.randint(len(known), (len(states_TD),), generator=torch.Generator().manual_seed(len(seen)))]


def _rounds(served: ServedTarget, ids: list[int], start: int) -> int:
    """Rounds of a text whose first token was chosen with its prompt."""
    blocks = -(-len(ids) // BLOCK_SIZE)
    rows, states = span_at(tables([blocks], blocks), [0], len(ids)), served.new_states(blocks + 1, BLOCK_SIZE)
    hidden = forward(served, torch.tensor([ids]), rows, states)[0][:, :-1]
    target, head = published_target(HYBRID), trained_head(HYBRID, PRESETS["hybrid"].shape)
    right = accepted(head, target, Written(torch.tensor([ids]), hidden, (start,)), hidden, DRAFTS)[0].tolist()
    rounds, anchor = 0, start
    while anchor < len(ids) - 1:
        rounds, anchor = rounds + 1, anchor + right[anchor] + 1
    return rounds
