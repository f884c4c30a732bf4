"""python -m tests.bench.gpu.blocks: drafts by DFlash, DFlash 2 and DSpark as captured graphs, against what they read.

Shapes are those of drafters for Qwen3-8B and for a dense Qwen3.5-27B, weights are random. First one layer of each kind
at these widths is compared with the CPU's float32, from the same file. Then each draft is replayed twice and compared
with one made without a graph, and timed. `--tiny` runs all of it on a CPU, where nothing is captured.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from services.common.kernels.linear.weight import Weight
from services.common.kernels.prepare_span import seat_block
from services.common.model import DraftBlock, load_block
from services.common.model.drafters import checkpoint_shapes, read_drafter_spec
from services.common.model.drafters.spec import prefixes
from services.common.model.states.states import Part, Rows
from tests.bench.gpu.chains import BYTES_A_SECOND, captured, timed
from tests.bench.gpu.nodes_rounds import traced
from tests.bench.gpu.shapes import QWEN3_5_27B, QWEN3_8B, verify_bytes
from tests.support.tiny_checkpoints import DRAFTERS, MASK_ID, TinyShape, write_configs

BAR, ABOVE_V1, NEAR = 1.35, 0.03, 0.02
"""Times its bytes; share of a round above DFlash's; relative distance of hidden rows in bfloat16 from float32's."""
CONTEXT, BLOCK, DRAFTS = 2048, 16, 7
KINDS = ("dflash", "dflash2", "dspark", "dspark-16", "dspark-32")
"""A number is of candidates among which a bias chooses."""
KERNELS = 14
"""Of a draft, that are told."""
PUBLISHED: Mapping[str, dict[str, int]] = {
    "dflash": {}, "dspark": {"markov_rank": 256},
    "dflash2": {"conv_kernel_size": 2, "conv_group_size": 16, "selector_rank": 256, "selector_top_k": 16},
}  # fmt: skip
"""Sizes of what a kind has of its own, as published."""
SHAPES = {
    "qwen3-8b": replace(QWEN3_8B, block_size=8),
    "qwen3.5-27b": replace(QWEN3_5_27B, block_size=8, heads=32, kv_heads=8, head_dim=128),
}
"""Published drafters of hybrids have Qwen3's heads, not their target's."""


@dataclass(frozen=True)
class Case:
    """A drafter and the tables that it drafts with."""

    kind: str
    shape: TinyShape
    block: DraftBlock
    embed_VD: Tensor
    head: Weight

    def bytes(self, rows: int, context: int) -> int:
        """What a draft reads: layers, head, context, and a chain's bias or a selector's rows."""
        spec, width = self.block.spec, self.embed_VD.element_size()
        shapes = checkpoint_shapes(spec)
        layers = sum(
            torch.Size(size).numel() for name, size in shapes.items() if name.startswith(tuple(prefixes(spec)))
        )
        biased = torch.Size(shapes["markov_head.markov_w2.weight"]) if "dspark" in self.kind else (0, 0)
        own = DRAFTS * biased[1] * (rows * candidates_of(self.kind) or biased[0])
        kept = 2 * len(spec.layers) * spec.attention.kv_heads * spec.attention.head_dim * rows * context
        return width * (layers + self.shape.vocab * self.shape.hidden + own + kept)


def candidates_of(kind: str) -> int:
    """Return among how many tokens a kind chooses by the token before; 0: all."""
    return int(kind.partition("-")[2] or 0)


def write_case(folder: Path, kind: str, shape: TinyShape, tiny: bool) -> Path:
    """Write the configuration of a kind of drafter; return its folder."""
    kind = kind.partition("-")[0]
    changes: dict[str, Any] = dict(DRAFTERS[kind])
    sizes: dict[str, Any] = {} if tiny else dict(PUBLISHED[kind])
    if kind == "dspark":
        changes |= sizes | {"target_layer_ids": [tap + 1 for tap in shape.taps], "block_size": DRAFTS}
    else:
        inner = {**changes.get("dflash_config", {"mask_token_id": MASK_ID}), **sizes}
        changes["dflash_config"] = inner | {"target_layer_ids": list(shape.taps)}
    return write_configs(folder, shape, "qwen3", drafter=changes).drafter


def open_case(folder: Path, kind: str, shape: TinyShape, tiny: bool, where: str, dtype: torch.dtype) -> Case:
    """Return a case with random weights."""
    own = write_case(folder, kind, shape, tiny)
    block = load_block(own, dtype, where, random_weights=True, candidates=candidates_of(kind))
    draw = torch.Generator(where).manual_seed(1)
    embed_VD, head_VD = (
        torch.empty(shape.vocab, shape.hidden, dtype=dtype, device=where).normal_(std=0.02, generator=draw)
        for _ in range(2)
    )
    return Case(kind, shape, block, *block.seat(embed_VD, head_VD))


def inputs(block: DraftBlock, kv: Tensor, rows: int, context: int) -> tuple[Tensor, Rows]:
    """Return anchors with their masks, and where they stand, for sequences of one length."""
    blocks, device, spec = -(-(context + BLOCK) // BLOCK), kv.device, block.spec
    table = torch.arange(1, rows * blocks + 1, dtype=torch.int32, device=device).view(rows, blocks)
    lengths, every = torch.full((rows,), context, device=device), torch.arange(rows, device=device, dtype=torch.int32)
    anchors = torch.arange(rows, device=device) + 5
    ids, span = seat_block(every, anchors, lengths, table, spec.block_size, BLOCK, spec.mask_token_id)
    return ids, Rows(Part(span, every))


def drafter(case: Case, rows: int, context: int) -> Callable[[], Tensor]:
    """Return what drafts for so many sequences at random contexts of one length."""
    kv = context_kv(case.block, rows, context, case.embed_VD)
    case.block.reach(context)

    def draft() -> Tensor:
        ids, span = inputs(case.block, kv, rows, context)
        return case.block.propose(ids, span, kv, case.embed_VD, case.head, DRAFTS)

    return draft


def context_kv(block: DraftBlock, rows: int, context: int, like: Tensor) -> Tensor:
    """Return a random context of sequences, each in blocks of its own."""
    spec, blocks = block.spec, -(-(context + BLOCK) // BLOCK)
    size = (len(spec.layers), 2, rows * blocks + 1, BLOCK, spec.attention.kv_heads, spec.attention.head_dim)
    return torch.randn(size, device=like.device, dtype=like.dtype)


def distance(folder: Path, kind: str, shape: TinyShape, tiny: bool, where: str, dtype: torch.dtype) -> float:
    """Return how far hidden rows of one layer at a shape's widths are from the CPU's in float32, of the same file."""
    small = replace(shape, vocab=1024, draft_layers=1)
    own, draw = write_case(folder, kind, small, tiny), torch.Generator().manual_seed(3)
    tensors = {
        name: (torch.randn(size, generator=draw) * 0.02 + float("norm" in name or "base_kernel" in name)).to(dtype)
        for name, size in checkpoint_shapes(read_drafter_spec(own)).items()
    }
    save_file(tensors, own / "model.safetensors", metadata={"format": "pt"})
    embed, found = (torch.randn(small.vocab, small.hidden, generator=draw) * 0.02).to(dtype), list[Tensor]()
    kv = None
    for device, kind_of in (("cpu", torch.float32), (where, dtype)):
        block = load_block(own, kind_of, device)
        block.reach(256)
        kv = context_kv(block, 2, 256, embed.to("cpu")) if kv is None else kv
        ids, rows = inputs(block, kv.to(device), 2, 256)
        found.append(block.hidden(ids, rows, kv.to(device, kind_of), embed.to(device, kind_of)).double().cpu())
    expected, got = found
    return float((got - expected).norm() / expected.norm())


def kernels_of(case: Case, rows: int, context: int) -> list[str]:
    """Return what kernels of a draft take, longest first: launches, and microseconds to each one's end."""
    graph, _ = captured(drafter(case, rows, context))
    taken = sorted(traced(graph.replay).items(), key=lambda each: -each[1][1])
    launches, total = (sum(each) for each in zip(*(one for _, one in taken), strict=True))
    told = [f"  {took:.1f} us of {count} {name[:80]}" for name, (count, took) in taken[:KERNELS]]
    return [f"  {case.kind} x {rows}: {total:.0f} us of {launches} launches", *told]


def lines_of(
    name: str, kinds: Sequence[str], shape: TinyShape, tiny: bool, where: str, dtype: torch.dtype, kernels: bool = False
) -> tuple[list[str], bool]:
    """Return the table's lines of a shape, and whether every draft was right; with `kernels` what those take too."""
    context, lines, right, base = 64 if tiny else CONTEXT, list[str](), True, dict[int, float]()
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder:
            near = distance(Path(folder) / "one", kind, shape, tiny, where, dtype)
            case = open_case(Path(folder) / "whole", kind, shape, tiny, where, dtype)
        for rows in (1, 8):
            took, same = timed(drafter(case, rows, context))
            floor = 1e3 * case.bytes(rows, context) / BYTES_A_SECOND
            first = base.setdefault(rows, took)
            share = (took - first) / (1e3 * verify_bytes(shape, rows, context) / BYTES_A_SECOND + first)
            right &= same and near <= NEAR
            told = f"| {took:.3f} | {floor:.3f} | {took / floor:.2f} | {100 * share:.1f} % | {near:.4f} | {same} |"
            lines.append(f"| {name} | {kind} | {rows} {told}")
        if kernels:
            lines += kernels_of(case, rows, context)
        del case
    return lines, right


def main() -> int:
    """Prints a table; 0 when rows are near the CPU's and every graph drafted what was drafted without."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu.blocks", description=__doc__)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--shapes", nargs="+", choices=sorted(SHAPES), default=list(SHAPES))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="the first is compared with")
    parser.add_argument("--kernels", action="store_true", help="tell what kernels of drafts for eight take; a GPU")
    given = parser.parse_args()
    where, dtype = ("cpu", torch.float32) if given.tiny else ("cuda", torch.bfloat16)
    shapes = {"tiny": TinyShape(context=4096)} if given.tiny else {name: SHAPES[name] for name in given.shapes}
    bars = f"times ({BAR}) | above v1 ({100 * ABOVE_V1:.0f} %)"
    print(
        f"| shape | kind | rows | ms | bytes, ms | {bars} | distance | same |", "|---" * 9 + "|", sep="\n", flush=True
    )
    right = True
    with torch.inference_mode():
        for name, shape in shapes.items():
            lines, good = lines_of(name, given.kinds, shape, given.tiny, where, dtype, given.kernels)
            right &= good
            print("\n".join(lines), flush=True)
    print(json.dumps({"right": right}))
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
