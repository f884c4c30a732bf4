"""`python -m tests.bench.kv_quality FILE...`: what keys and values in eight bits cost a model on texts.

Perplexity with wide ones and with codes, and how often the likeliest token is the same; one JSON line. Windows of a
text are computed whole, each by itself, in float32 on a CPU.
"""

import argparse
import json
import math
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from services.common.kernels.span_attention import plan_span
from services.common.model import Target, load_target
from services.common.model.files.checkpoint import resolve_folder
from services.common.model.states.states import Part, Rows

BLOCK = 16


@dataclass(frozen=True)
class Quality:
    """Over `tokens`: perplexities, and the share of tokens of which both find the same one likeliest."""

    tokens: int
    wide: float
    eight_bits: float
    same: float

    @property
    def ratio(self) -> float:
        """Of the perplexities; 1 is no loss."""
        return self.eight_bits / self.wide


def quality(target: Target, ids_T: Tensor, window: int, most: int) -> Quality:
    """Compare the two on at most so many whole windows of a text."""
    losses, same, count = [0.0, 0.0], 0, 0
    for start in range(0, min(len(ids_T) - window, most * window), window):
        part_T = ids_T[start : start + window + 1]
        likeliest = []
        for index, coded in enumerate((False, True)):
            logits_TV = logits(target, part_T[:-1], coded).double()
            losses[index] += float(torch.nn.functional.cross_entropy(logits_TV, part_T[1:], reduction="sum"))
            likeliest.append(logits_TV.argmax(-1))
        same += int((likeliest[0] == likeliest[1]).sum())
        count += window
    wide, eight_bits = (math.exp(loss / count) for loss in losses)
    return Quality(count, wide, eight_bits, same / count)


@torch.inference_mode()
def logits(target: Target, ids_T: Tensor, coded: bool) -> Tensor:
    blocks = -(-len(ids_T) // BLOCK)
    table_BN, zero_B = torch.arange(1, blocks + 1, dtype=torch.int32)[None], torch.zeros(1, dtype=torch.int64)
    rows = Rows(Part(plan_span(table_BN, zero_B, len(ids_T), BLOCK), zero_B))
    return target.logits(target.forward(ids_T, rows, target.new_states(blocks + 1, BLOCK, coded=coded))[0])


def main(words: list[str]) -> int:
    """Print one line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.kv_quality", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="texts, read as one")
    parser.add_argument("--model", default="models/embedded/target", help="folder, GGUF file or packaged model")
    parser.add_argument("--window", type=int, default=512, help="tokens of a window")
    parser.add_argument("--windows", type=int, default=12, help="windows at most")
    asked = parser.parse_args(words)
    folder = resolve_folder(asked.model)
    text = "".join(path.read_text() for path in asked.files)
    ids_T = torch.tensor(Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids)
    found = quality(load_target(folder), ids_T, asked.window, asked.windows)
    print(json.dumps({"model": asked.model, **asdict(found), "ratio": found.ratio}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
