"""python -m tests.bench.gpu.chains: drafts by chains as one captured graph each, against the bytes that they read.

Shapes are those of EAGLE-3 for Qwen3-8B and of the head of a dense Qwen3.5-27B, weights are random. Each draft is first
replayed twice and compared with one made without a graph. `--tiny` runs all of it on a CPU, where nothing is captured.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from services.common.kernels.linear.int8_weight import Int8Weight
from services.common.kernels.linear.weight import Weight
from services.common.kernels.span_attention import plan_context
from services.common.model import DraftChain, load_chain
from services.common.model.drafters import checkpoint_shapes
from services.common.model.drafters.spec import EMBED
from tests.support.tiny_checkpoints import TinyShape, write_configs

BYTES_A_SECOND = 4.3e12
"""Of an H200's memory, read."""
BAR = 1.35
CONTEXT, BLOCK, REPEATS = 2048, 16, 40
EAGLE: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "vocab_size": 151936, "hidden_size": 4096,
    "intermediate_size": 12288, "num_hidden_layers": 1, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 128, "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
    "hidden_act": "silu", "draft_vocab_size": 32000,
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 18, 33], "use_aux_hidden_state": True},
}  # fmt: skip
HYBRID = TinyShape(248320, 5120, 17408, 64, 24, 4, 256, 262144, tied=False)
TINY_EAGLE = {
    "vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 16, "draft_vocab_size": 96, "max_position_embeddings": 4096,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A drafter, the tables that it drafts with, and whether its head is one of eight bits."""

    name: str
    chain: DraftChain
    embed_VD: Tensor
    head: Weight

    @property
    def step_bytes(self) -> int:
        """What a step reads of weights: its layer, what stands before it but the product of features, and the head."""
        shapes = checkpoint_shapes(self.chain.spec)
        skipped = (EMBED, "lm_head.weight", "d2t") + (("fc.weight",) if self.chain.spec.kind == "eagle3" else ())
        weights = sum(torch.Size(shape).numel() for name, shape in shapes.items() if name not in skipped)
        width = self.embed_VD.element_size()
        return weights * width + self.chain.spec.scored * self.chain.spec.hidden_size * _head_width(self.head, width)


def _head_width(head: Weight, width: int) -> int:
    return 1 if isinstance(head, Int8Weight) else width


def cases(folder: Path, tiny: bool, device: str, dtype: torch.dtype) -> list[Case]:
    """EAGLE-3, and the hybrid's head with tables as they are and in eight bits."""
    config = {**EAGLE, **TINY_EAGLE} if tiny else dict(EAGLE)
    own = folder / "eagle3"
    own.mkdir()
    (own / "config.json").write_text(json.dumps(config))
    shape = TinyShape() if tiny else HYBRID
    hybrid = write_configs(folder / "hybrid", shape, "qwen3_5_text").target
    found = [_case("eagle3", own, config["vocab_size"], config["hidden_size"], device, dtype, False)]
    for name, int8 in (("mtp", False), ("mtp, eight bits", True)):
        found.append(_case(name, hybrid, shape.vocab, shape.hidden, device, dtype, int8))
    return found


def _case(name: str, folder: Path, vocab: int, width: int, device: str, dtype: torch.dtype, int8: bool) -> Case:
    chain = load_chain(folder, dtype, device, random_weights=True, int8=int8)
    draw = torch.Generator(device).manual_seed(1)
    embed_VD, head_VD = (
        torch.empty(vocab, width, dtype=dtype, device=device).normal_(std=0.02, generator=draw) for _ in range(2)
    )
    seated, head = chain.seat(embed_VD, head_VD)
    return Case(name, chain, seated, head)


def drafter(case: Case, rows: int, count: int, context: int) -> Callable[[], Tensor]:
    """Return what drafts for so many rows at random contexts of one length."""
    spec, device, dtype = case.chain.spec, case.embed_VD.device, case.embed_VD.dtype
    blocks = -(-(context + count) // BLOCK)
    size = (1, 2, rows * blocks + 1, BLOCK, spec.attention.kv_heads, spec.attention.head_dim)
    kv = torch.randn(size, device=device).to(dtype)
    table = torch.arange(1, rows * blocks + 1, dtype=torch.int32, device=device).view(rows, blocks)
    lengths = torch.full((rows,), context, device=device)
    anchors = torch.arange(rows, device=device) + 5
    seeds = torch.randn(rows, spec.hidden_size, device=device).to(dtype)
    case.chain.reach(context)

    def draft() -> Tensor:
        span = plan_context(table, lengths, count, BLOCK)
        return case.chain.propose(anchors, seeds, span, kv, case.embed_VD, case.head)

    return draft


def timed(draft: Callable[[], Tensor]) -> tuple[float, bool]:
    """Return the milliseconds of a draft, and whether a graph's is the one made without."""
    expected = draft()
    if not expected.is_cuda:
        began = time.perf_counter()
        same = bool((draft() == expected).all())
        return 1e3 * (time.perf_counter() - began), same
    graph, found = captured(draft)
    graph.replay()
    graph.replay()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(REPEATS + 1)]
    for mark in marks:
        mark.record()
        graph.replay()
    torch.cuda.synchronize()
    took = [before.elapsed_time(after) for before, after in pairwise(marks)]
    return statistics.median(took), bool((found == expected).all())


def captured(draft: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """Return a graph of a draft, and where it leaves the tokens."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        draft()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = draft()
    return graph, found


def main() -> int:
    """Prints a table; 0 when every graph drafted what was drafted without."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu.chains", description=__doc__)
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args()
    device, dtype = ("cpu", torch.float32) if given.tiny else ("cuda", torch.bfloat16)
    context, counts = (64, (2,)) if given.tiny else (CONTEXT, (3, 5, 7))
    lines, right = [f"| drafter | rows | K | ms | floor, ms | times (bar {BAR}) |", "|---|---|---|---|---|---|"], True
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        for case in cases(Path(folder), given.tiny, device, dtype):
            kept = (
                case.chain.spec.attention.kv_heads * case.chain.spec.attention.head_dim * case.embed_VD.element_size()
            )
            for rows in (1, 8):
                for count in counts:
                    took, same = timed(drafter(case, rows, count, context))
                    floor = 1e3 * count * (case.step_bytes + 2 * kept * rows * context) / BYTES_A_SECOND
                    right &= same
                    lines.append(f"| {case.name} | {rows} | {count} | {took:.3f} | {floor:.3f} | {took / floor:.2f} |")
    print("\n".join(lines))
    print("drafts of graphs are those without" if right else "DRAFTS DIFFER")
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
