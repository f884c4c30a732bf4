"""A pair run through the kernels against the same pair run through the references on the CPU."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from services.common.kernels.dispatch import Operator
from services.common.kernels.linear import kernel as linear
from services.common.kernels.span_attention import plan_context, plan_span
from services.common.model import load_block, load_target
from services.common.model.drafters.context import load_context
from services.common.model.states.states import Part, Rows
from tests.kernels.gpu.devices import DEVICE, INTERPRETED, close
from tests.support.tiny_checkpoints import DRAFTERS, TinyShape, write_tiny
from tests.unit.common.model.pairs import block_ids, zero_centred

CHOOSING = ("linear", "span_attention")
"""Packages of kernels that choose by themselves; in the others an operator does."""
SHAPE = TinyShape(
    vocab=270, hidden=16, inner=24, layers=2, heads=2, kv_heads=1, draft_layers=1, block_size=3, taps=(0, 1)
)
MANY_ROWS = linear._MOST_ROWS + 6


def run_pair(folder: Path, device: str) -> list[torch.Tensor]:
    """Prefill in two chunks, the second padded; write the context; propose."""
    target = load_target(folder / "target", device=device)
    context, block = load_context(folder / "drafter", target), load_block(folder / "drafter", device=device)
    states, draft_kv = target.new_states(6, 4), torch.empty(context.kv_shape(6, 4), device=device)
    for tensor in (*states.tensors, draft_kv):
        tensor.fill_(float("nan"))
    table = torch.tensor([[3, 5, 1, 0]], dtype=torch.int32, device=device)
    ids = torch.arange(3, 3 + 9, device=device)[None]
    outs, slot = [], torch.zeros(1, dtype=torch.int32, device=device)
    for start, width, valid in ((0, 6, 6), (6, 4, 3)):
        padded = torch.nn.functional.pad(ids[:, start : start + valid], (0, width - valid))
        lengths, valid_B = torch.tensor([start], device=device), torch.tensor([valid], device=device)
        rows = Rows(Part(plan_span(table, lengths, width, 4, valid_B), slot, valid_B))
        hidden, features = target.forward(padded[0], rows, states, context.taps)
        context.write(features, rows, draft_kv)
        outs += [target.logits(hidden)[:valid], features[:valid]]
    rows = Rows(Part(plan_context(table, torch.tensor([9], device=device), 3, 4), slot))
    ids = block_ids(block, torch.tensor([77], device=device))
    outs.append(block.hidden(ids, rows, draft_kv, target.embed_VD))
    outs.append(block.hidden(ids, Rows(*rows.parts, ends=range(1, 2)), draft_kv, target.embed_VD))
    outs.append(block.propose(ids, rows, draft_kv, target.embed_VD, target.lm_head_VD))
    return outs


def run_taps(folder: Path, device: str) -> torch.Tensor:
    """Features of more rows than own products take, so that sums are made in the stream's memory."""
    target = load_target(folder / "target", device=device)
    count, blocks = MANY_ROWS, -(-MANY_ROWS // 4)
    table = torch.arange(1, blocks + 1, dtype=torch.int32, device=device)[None]
    ids, start = torch.arange(count, device=device)[None], torch.zeros(1, dtype=torch.int64, device=device)
    rows = Rows(Part(plan_span(table, start, count, 4), start))
    return target.forward(ids[0], rows, target.new_states(blocks + 1, 4), (0, 1))[1]


def test_zero_centred_norms_by_kernels(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path, 3, SHAPE, std=0.25).target
    table, zero = torch.tensor([[3, 5, 1, 0]], dtype=torch.int32, device=DEVICE), torch.zeros(1, dtype=torch.int64)
    ids, outs = torch.arange(3, 3 + 9, device=DEVICE), []
    for target in (load_target(folder, device=DEVICE), zero_centred(folder, torch.float32, DEVICE)):
        rows = Rows(Part(plan_span(table, zero.to(DEVICE), 9, 4), zero.to(DEVICE)))
        outs.append(target.logits(target.forward(ids, rows, target.new_states(6, 4))[0]))
    close(outs[1], outs[0])


def as_references(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators compute in torch, in a model that is laid out for kernels."""
    monkeypatch.setattr(Operator, "__call__", lambda operator, *args, **kwargs: operator.reference(*args, **kwargs))
    for module in CHOOSING:
        monkeypatch.setattr(f"services.common.kernels.{module}.on_kernel", lambda tensor: False)


def test_tapped_streams_are_kept_where_sums_are_made_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tiny(tmp_path, 3, SHAPE, std=0.25)
    by_kernels = run_taps(tmp_path, DEVICE)
    as_references(monkeypatch)
    close(by_kernels.float(), run_taps(tmp_path, "cpu").float())


GATED = {"architectures": ["DFlashLagunaForCausalLM"], "gating": "per-head"}


@pytest.mark.parametrize("own", [{"use_sliding_window": True, "input_embedding_scale": 5.75}, GATED])
def test_a_drafter_that_slides_gives_the_same_by_kernels(
    own: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine tokens of context are more than its window; one has gates of heads, and norms of taps."""
    window = {"layer_types": ["sliding_attention"], "sliding_window": 4}
    write_tiny(tmp_path, 3, SHAPE, std=0.25, drafter=window | own)
    by_kernels = run_pair(tmp_path, DEVICE)
    as_references(monkeypatch)
    for got, expected in zip(by_kernels, run_pair(tmp_path, "cpu"), strict=True):
        close(got.float(), expected.float())


def propose_for_two(folder: Path, device: str, candidates: int) -> list[list[int]]:
    """Drafts behind two anchors of one text, by a block that the rest of a pair is made for."""
    target = load_target(folder / "target", device=device)
    context = load_context(folder / "drafter", target)
    block = load_block(folder / "drafter", device=device, candidates=candidates)
    draft_kv = torch.zeros(context.kv_shape(6, 4), device=device)
    table = torch.tensor([[3, 5, 1, 0]] * 2, dtype=torch.int32, device=device)
    slots, start = torch.zeros(1, dtype=torch.int32, device=device), torch.tensor([0], device=device)
    rows = Rows(Part(plan_span(table[:1], start, 9, 4), slots, torch.tensor([9], device=device)))
    _, features = target.forward(torch.arange(3, 12, device=device), rows, target.new_states(6, 4), context.taps)
    context.write(features, rows, draft_kv)
    ids = block_ids(block, torch.tensor([77, 78], device=device))
    lengths, both = torch.tensor([9, 6], device=device), torch.arange(2, dtype=torch.int32, device=device)
    span = plan_context(table, lengths, block.spec.block_size, 4)
    drafts: list[list[int]] = block.propose(
        ids, Rows(Part(span, both)), draft_kv, target.embed_VD, target.lm_head_VD
    ).tolist()
    return drafts


@pytest.mark.parametrize(("kind", "candidates"), [("dflash2", 0), ("dspark", 0), ("dspark", 8)])
def test_later_kinds_draft_the_same_by_kernels(
    kind: str, candidates: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    if INTERPRETED and kind != "dflash2" and not full:
        return
    shape = replace(SHAPE, block_size=4)
    changes = dict(DRAFTERS[kind])
    if kind == "dspark":
        changes["target_layer_ids"] = [0, 1]
    else:
        changes["dflash_config"] = changes["dflash_config"] | {"target_layer_ids": [0, 1], "selector_top_k": 5}
    write_tiny(tmp_path, 3, shape, std=0.25, drafter=changes)
    by_kernels = propose_for_two(tmp_path, DEVICE, candidates)
    as_references(monkeypatch)
    monkeypatch.setattr("services.common.kernels.dispatch.INTERPRETED", False)
    for module in ("services.common.model.stack", "services.common.model.drafters.dflash2.stack"):
        monkeypatch.setattr(f"{module}.on_kernel", lambda tensor: False)
    assert by_kernels == propose_for_two(tmp_path, "cpu", candidates)
    assert len({tuple(drafts) for drafts in by_kernels}) == 2


@pytest.mark.parametrize("family", ["qwen3", "llama", "qwen2"])
def test_a_pair_gives_the_same_by_kernels(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tiny(tmp_path, 3, SHAPE, std=0.25, family=family)
    by_kernels = run_pair(tmp_path, DEVICE)
    as_references(monkeypatch)
    for got, expected in zip(by_kernels, run_pair(tmp_path, "cpu"), strict=True):
        close(got.float(), expected.float())


def test_segments_of_prompts_side_by_side_are_the_prompts(tmp_path: Path) -> None:
    """Seven tokens in two segments and three in one, beside an empty one, against each prompt in a span of its own."""
    shape = replace(SHAPE, layers=1, taps=(0,))
    target = load_target(write_tiny(tmp_path, 3, shape, std=0.25).target, device=DEVICE)
    tables = torch.tensor([[3, 5, 0], [1, 2, 0], [0, 0, 0]], dtype=torch.int32, device=DEVICE)
    prompts = torch.arange(40, 47, device=DEVICE), torch.arange(90, 93, device=DEVICE)

    def forward(ids: torch.Tensor, slots: list[int], starts: list[int], valid: list[int], width: int) -> torch.Tensor:
        slots_B, starts_B, valid_B = (torch.tensor(each, device=DEVICE) for each in (slots, starts, valid))
        span = plan_span(tables[slots_B], starts_B, width, 4, valid_B)
        hidden_TD, _ = target.forward(ids, Rows(Part(span, slots_B, valid_B)), states)
        return hidden_TD.view(len(slots), width, -1)

    states = target.new_states(6, 4)
    alone = [forward(ids, [slot], [0], [len(ids)], len(ids))[0] for slot, ids in enumerate(prompts)]
    kept = states.tensors[0].clone()
    states = target.new_states(6, 4)
    ids = torch.cat([torch.nn.functional.pad(each, (0, -len(each) % 4)) for each in prompts])
    packed = forward(torch.nn.functional.pad(ids, (0, 4)), [0, 0, 1, 2], [0, 4, 0, 0], [4, 3, 3, 0], 4)
    close(torch.cat((packed[0], packed[1, :3])), alone[0])
    close(packed[2, :3], alone[1])
    close(states.tensors[0][:, :, 1:], kept[:, :, 1:])
