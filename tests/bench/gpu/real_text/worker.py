"""`python worker.py ORDER ANSWER`, with vLLM in PYTHONPATH and nothing of this project: one engine, real weights.

It measures once the file that the order names is there, so that several may start side by side. Answers are stepped
from here in a closed loop, as the other side's are. Tokens a round come of vLLM's own counters.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

BATCHED_TOKENS = 16384
"""Of a prefill: vLLM warns of less with drafts."""
POLL_S = 0.2


class Engine:
    """vLLM with a target and its drafter."""

    def __init__(self, order: dict[str, Any]) -> None:
        """Starts it; takes a minute or two."""
        self._vllm: Any = importlib.import_module("vllm")
        self._order = order
        self._llm = self._vllm.LLM(
            model=order["target"],
            skip_tokenizer_init=True,
            dtype="bfloat16",
            seed=0,
            max_model_len=order["context"],
            max_num_seqs=order["slots"],
            max_num_batched_tokens=BATCHED_TOKENS,
            gpu_memory_utilization=order["memory_fraction"],
            # Told, not profiled: what others free on the GPU meanwhile would end the start.
            kv_cache_memory_bytes=order["kv_bytes"],
            enable_prefix_caching=False,
            disable_log_stats=False,
            speculative_config=self._speculation(),
        )

    def told(self, load: dict[str, Any]) -> dict[str, Any]:
        """One repeat of a load: a new answer starts as one ends."""
        engine, started, tokens = self._llm.llm_engine, 0, 0
        before = self._counters()
        began = time.monotonic()
        while started < load["count"] or engine.has_unfinished_requests():
            while started < load["count"] and engine.get_num_unfinished_requests() < load["streams"]:
                self._start(engine, began, started, load)
                started += 1
            for output in engine.step():
                tokens += len(output.outputs[0].token_ids) if output.finished else 0
        seconds = time.monotonic() - began
        drafts, accepted = (new - old for new, old in zip(self._counters(), before, strict=True))
        tau = 1 + accepted / drafts if drafts else 1.0
        return {"seconds": seconds, "tokens": tokens, "tau": tau}

    def _start(self, engine: Any, began: float, index: int, load: dict[str, Any]) -> None:
        prompt_of = importlib.import_module("vllm.inputs").TokensPrompt
        final = importlib.import_module("vllm.sampling_params").RequestOutputKind.FINAL_ONLY
        sampling = self._vllm.SamplingParams(
            temperature=load["temperature"], max_tokens=load["tokens"], seed=index, detokenize=False,
            stop_token_ids=self._order["ends"], output_kind=final,
        )  # fmt: skip
        prompts = self._order["prompts"]
        engine.add_request(f"{began}-{index}", prompt_of(prompt_token_ids=prompts[index % len(prompts)]), sampling)

    def _speculation(self) -> dict[str, Any] | None:
        if not self._order["k"]:
            return None
        return {"method": "dflash", "model": self._order["drafter"], "num_speculative_tokens": self._order["k"]}

    def _counters(self) -> tuple[int, int]:
        """Rounds with drafts, and drafts that were accepted, since the start."""
        found = {one.name: getattr(one, "value", 0) for one in self._llm.get_metrics()}
        return int(found.get("vllm:spec_decode_num_drafts", 0)), int(
            found.get("vllm:spec_decode_num_accepted_tokens", 0)
        )


def main(order_file: str, answer_file: str) -> int:
    """Runs what the order names and writes the answer, load by load."""
    order = json.loads(Path(order_file).read_text())
    engine = Engine(order)
    Path(order["ready"]).touch()
    while not Path(order["go"]).exists():
        time.sleep(POLL_S)
    measured = []
    for load in order["loads"]:
        engine.told(load)
        measured.append([engine.told(load) for _ in range(load["repeats"])])
        Path(answer_file).write_text(json.dumps({"measured": measured}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
