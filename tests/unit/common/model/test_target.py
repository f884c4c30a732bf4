"""The target's forward: against transformers, and invariant to chunks, widths, neighbours and stale memory."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from services.common.model import Target, load_target
from services.common.model.files.manifest import write_manifest
from services.common.model.states.states import Rows
from tests.support.tiny_checkpoints import TinyShape, write_tiny
from tests.unit.common.model.pairs import (
    forward,
    ids_like,
    load_pair,
    poisoned,
    poisoned_states,
    span_at,
    tables,
    zero_centred,
)

SHAPES = {
    "tied": TinyShape(),
    "untied": TinyShape(tied=False, layers=3, taps=(0, 1)),
    "many_queries": TinyShape(heads=8, kv_heads=1, head_dim=8, layers=4),
    "no_groups": TinyShape(heads=3, kv_heads=3, head_dim=12, hidden=48, layers=4),
    "taps the last block": TinyShape(layers=3, taps=(2, 0)),
}
ORIGINAL = 64
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": ORIGINAL}
STRETCHED: dict[str, dict[str, Any]] = {
    "yarn": YARN,
    "attention factor": YARN | {"attention_factor": 0.8},
    "betas": YARN | {"beta_fast": 8.0, "beta_slow": 0.5},
    "mscale": YARN | {"mscale": 0.7, "mscale_all_dim": 1.3},
    "llama3": {
        "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": ORIGINAL,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_logits_and_features_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    target, context, _ = load_pair(tmp_path, SHAPES[name])
    from transformers import AutoModelForCausalLM

    reference = AutoModelForCausalLM.from_pretrained(tmp_path / "target").eval()
    ids = ids_like(2, 21)
    with torch.no_grad():
        expected = reference(ids, output_hidden_states=True)
    states = poisoned_states(target, 13)
    hidden, features = forward(target, ids, span_at(tables([6, 6], 6), [0, 0], 21), states, context.taps)
    streams = [expected.hidden_states[tap + 1] for tap in context.taps]
    torch.testing.assert_close(target.logits(hidden), expected.logits, atol=1e-4, rtol=0)
    torch.testing.assert_close(features, torch.cat(streams, -1), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("name", STRETCHED)
def test_stretched_frequencies_are_those_of_transformers_beyond_the_original_length(name: str, tmp_path: Path) -> None:
    """In float32, within 1e-5 of the logits' scale, as the file is written by hand for a longer context."""
    folder = write_tiny(tmp_path, 1, TinyShape(context=4 * ORIGINAL), std=0.25).target
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rope_scaling": STRETCHED[name]}))
    write_manifest(folder)
    target = load_target(folder)
    from transformers import AutoModelForCausalLM

    reference = AutoModelForCausalLM.from_pretrained(folder).eval()
    length = 3 * ORIGINAL
    ids, table = ids_like(1, length), tables([length // 4], length // 4)
    with torch.no_grad():
        expected = reference(ids).logits
    states = poisoned_states(target, length // 4 + 1)
    got = target.logits(forward(target, ids, span_at(table, [0], length), states)[0])
    scale = float(expected.abs().max())
    assert float((got - expected)[:, ORIGINAL:].abs().max()) <= 1e-5 * scale


def run_whole(target: Target, ids: torch.Tensor) -> torch.Tensor:
    length = ids.shape[1]
    states = poisoned_states(target)
    return forward(target, ids, span_at(tables([20], 20), [0], length), states)[0]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Target:
    return load_target(write_tiny(tmp_path_factory.mktemp("pair"), 5, std=0.25).target, torch.float64)


def test_chunks_and_single_steps_equal_one_pass(target: Target) -> None:
    ids = ids_like(1, 40)
    whole, states, table = run_whole(target, ids), poisoned_states(target), tables([12], 20)
    start = 0
    for width in (13, 1, 8, 4, 1, 1, 12):
        hidden, _ = forward(target, ids[:, start : start + width], span_at(table, [start], width), states)
        torch.testing.assert_close(hidden, whole[:, start : start + width], atol=1e-12, rtol=1e-12)
        start += width


def test_padded_chunk_writes_only_its_valid_rows(target: Target) -> None:
    ids, table = ids_like(1, 30), tables([5], 20)
    whole, states = run_whole(target, ids), poisoned_states(target)
    padded = torch.cat((ids[:, :17], torch.zeros(1, 15, dtype=torch.int64)), 1)
    hidden, _ = forward(target, padded, span_at(table, [0], 32, valid=[17]), states)
    torch.testing.assert_close(hidden[:, :17], whole[:, :17], atol=1e-12, rtol=1e-12)
    owned = set(table[0, :5].tolist())
    written = {block for block in range(40) if not bool(states.tensors[0][0, 0, block].isnan().all())}
    assert written <= owned | {0}
    assert bool(states.tensors[0][:, :, int(table[0, 4]), 1:].isnan().all())


def test_rejected_rows_are_overwritten_and_never_seen(target: Target) -> None:
    ids, wrong = ids_like(1, 20), ids_like(1, 8, seed=9)
    whole, states, table = run_whole(target, ids), poisoned_states(target), tables([9], 20)
    forward(target, ids[:, :11], span_at(table, [0], 11), states)
    forward(target, torch.cat((ids[:, 11:13], wrong[:, 2:]), 1), span_at(table, [11], 8), states)
    for position in range(13, 20):
        hidden, _ = forward(target, ids[:, position : position + 1], span_at(table, [position], 1), states)
        torch.testing.assert_close(hidden[0, 0], whole[0, position], atol=1e-12, rtol=1e-12)


def test_neighbours_pad_rows_and_stale_blocks_never_reach_a_row(target: Target) -> None:
    ids, states = ids_like(1, 30), poisoned_states(target)
    whole = run_whole(target, ids)
    table = torch.cat((tables([9, 4], 20), torch.zeros(2, 20, dtype=torch.int32)))
    forward(target, ids[:, :26], span_at(table[:1], [0], 26), states)
    forward(target, ids_like(1, 3, seed=8), span_at(table[1:2], [0], 3), states)
    poisoned(states.tensors[0][:, :, 0])
    span_ids = torch.cat((ids[:, 26:30], ids_like(1, 4, seed=4), torch.zeros(2, 4, dtype=torch.int64)))
    hidden, _ = forward(target, span_ids, span_at(table, [26, 3, 0, 70], 4), states)
    torch.testing.assert_close(hidden[0], whole[0, 26:30], atol=1e-12, rtol=1e-12)
    assert bool(hidden[1].isfinite().all())


def test_positions_past_the_block_table_write_to_the_pad_block(target: Target) -> None:
    states, table = poisoned_states(target, 5), torch.tensor([[3, 1]], dtype=torch.int32)
    forward(target, ids_like(1, 6), span_at(table, [0], 6), states)
    (kv,) = states.tensors
    before = kv[:, :, 1:].clone()
    hidden, _ = forward(target, ids_like(1, 8), span_at(table, [6], 8), states)
    assert bool(hidden[0, :2].isfinite().all())
    assert torch.equal(kv[:, :, 3], before[:, :, 2])
    assert torch.equal(kv[:, :, 1, :2], before[:, :, 0, :2])
    assert bool(kv[:, :, [2, 4]].isnan().all())


def test_rows_without_a_block_never_poison_the_rows_before_them(target: Target) -> None:
    ids, states = ids_like(1, 12), poisoned_states(target)
    whole, table = run_whole(target, ids), tables([3], 20)
    forward(target, ids[:, :9], span_at(table, [0], 9), states)
    poisoned(states.tensors[0][:, :, 0])
    span_ids = torch.cat((ids[:, 9:12], ids_like(1, 5)), 1)
    batch = torch.cat((span_ids, torch.zeros(1, 8, dtype=torch.int64)))
    pads = torch.cat((table, torch.zeros_like(table)))
    hidden, _ = forward(target, batch, span_at(pads, [9, 0], 8), states)
    torch.testing.assert_close(hidden[0, :3], whole[0, 9:], atol=1e-12, rtol=1e-12)


def test_an_off_by_one_in_positions_is_noticed(target: Target) -> None:
    ids = ids_like(1, 12)
    whole, states, table = run_whole(target, ids), target.new_states(40, 4), tables([6], 20)
    forward(target, ids[:, :10], span_at(table, [0], 10), states)
    hidden, _ = forward(target, ids[:, 10:11], span_at(table, [11], 1), states)
    assert float((hidden[0, 0] - whole[0, 10]).abs().max()) > 1e-3


def test_bfloat16_is_close_to_float32(tmp_path: Path) -> None:
    pair = write_tiny(tmp_path, 5, std=0.25)
    narrow, wide = load_target(pair.target, torch.bfloat16), load_target(pair.target)
    ids = ids_like(1, 20)
    torch.testing.assert_close(
        narrow.logits(run_whole(narrow, ids)), wide.logits(run_whole(wide, ids)), atol=0.6, rtol=0.1
    )
    assert narrow.logits(run_whole(narrow, ids)).dtype == torch.float32


def test_zero_centred_norms_say_the_same(target: Target, tmp_path: Path) -> None:
    other = zero_centred(write_tiny(tmp_path, 5, std=0.25).target, torch.float64, "cpu")
    torch.testing.assert_close(run_whole(other, ids_like(1, 9)), run_whole(target, ids_like(1, 9)), atol=1e-12, rtol=0)


def test_shared_embeddings_replace_the_own_ones(target: Target, tmp_path: Path) -> None:
    own = load_target(write_tiny(tmp_path, 5, std=0.25).target, torch.float64)
    own.use_shared(own.embed_VD.clone(), None)
    assert own.lm_head_VD is own.embed_VD
    assert torch.equal(own.logits(run_whole(own, ids_like(1, 9))), target.logits(run_whole(target, ids_like(1, 9))))


def test_spans_of_unequal_length_in_one_forward_equal_each_alone(target: Target) -> None:
    """A chunk of a new prompt, padded, beside the spans of two running requests."""
    table, states = tables([5, 6, 5], 20), poisoned_states(target)
    ids = [ids_like(1, 17, seed=seed) for seed in range(3)]
    whole = [run_whole(target, each) for each in ids]
    for row in (1, 2):
        forward(target, ids[row][:, :13], span_at(table[row : row + 1], [0], 13), states)
    chunk, running = span_at(table[:1], [0], 17, valid=[9]), span_at(table[1:], [13, 13], 4)
    taps = (0, 3)
    packed = Rows(*chunk.parts, *running.parts)
    ids_T = torch.cat((ids[0][0], ids[1][0, 13:], ids[2][0, 13:]))
    hidden_TD, features_TF = target.forward(ids_T, packed, states, taps)
    torch.testing.assert_close(hidden_TD[:9], whole[0][0, :9], atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(hidden_TD[17:21], whole[1][0, 13:], atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(hidden_TD[21:], whole[2][0, 13:], atol=1e-12, rtol=1e-12)
    assert features_TF.shape == (25, 2 * target.spec.hidden_size)
