"""Hugging Face transformers on the same shapes: static cache, compiled decode step, plain greedy text."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from tests.support.tiny_checkpoints import TinyShape, write_configs

Row = dict[str, Any]
REPEATS = 3


def transformers_rows(
    shape: TinyShape, device: str, dtype: str, concurrencies: Sequence[int], tokens: int
) -> list[Row]:
    """Decode speed by the formula of the served rows: two runs that differ in their output alone, the median."""
    # Each batch is compiled for itself, not one step for all of them.
    torch._dynamo.config.automatic_dynamic_shapes = False
    model, length = _model(shape, device, dtype), min(512, shape.context // 4)
    prompts = [torch.randint(2, shape.vocab, (count, length), device=device) for count in concurrencies]
    first_runs = [_told(model, prompt, tokens) for prompt in prompts]
    rows = []
    for prompt, first_s in zip(prompts, first_runs, strict=True):
        spent = [_seconds(model, prompt, tokens) - _seconds(model, prompt, 1) for _ in range(REPEATS)]
        speed = len(prompt) * (tokens - 1) / statistics.median(spent)
        rows.append({
            "system": f"transformers {transformers.__version__}",
            "mode": "plain",
            "concurrency": len(prompt),
            "context": length,
            "decode_tok_s": round(speed, 1),
            "round_us": round(statistics.median(spent) / (tokens - 1) * 1e6, 1),
            "first_run_s": round(first_s, 1),
        })  # fmt: skip
    return rows


def _told(model: Any, prompt: torch.Tensor, tokens: int) -> float:
    """Seconds of the first run of a batch, which compiles: minutes for a large model."""
    seconds = _seconds(model, prompt, tokens)
    print(f"transformers: {len(prompt)} x {tokens} tokens compiled and run in {seconds:.0f} s", file=sys.stderr)
    return seconds


def _model(shape: TinyShape, device: str, dtype: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        config = json.loads((write_configs(Path(folder), shape).target / "config.json").read_text())
    with torch.device(device):
        made = transformers.AutoConfig.for_model(**config)
        model = transformers.AutoModelForCausalLM.from_config(made, dtype=getattr(torch, dtype))
    model.generation_config.eos_token_id = None
    return model.eval()


@torch.inference_mode()
def _seconds(model: Any, prompt: torch.Tensor, tokens: int) -> float:
    """Wall time of a run; on a GPU transformers compiles the step of a static cache by itself."""
    start = time.perf_counter()
    out = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=tokens,
        do_sample=False,
        cache_implementation="static",
        pad_token_id=0,
    )
    assert out.shape[1] == prompt.shape[1] + tokens, "every token was made"
    if prompt.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start
