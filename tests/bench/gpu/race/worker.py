"""`python worker.py ORDER ANSWER`, with a peer in PYTHONPATH and nothing of this project: one engine, some loads.

Whole loads are timed by the peer's own loop. When single tokens come is seen in one more run.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
import random
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

Streams = list[list[tuple[float, int]]]
"""Of each stream when tokens arrived since a begin, and how many."""

BATCHED_TOKENS = 16384
"""Of a prefill: vLLM warns of less with drafts."""
POOL = 256
"""Prompts of a closed loop, taken in turn."""


class Engine(ABC):
    """A peer with weights that it makes up."""

    version: str

    def __init__(self, order: dict[str, Any]) -> None:
        """Keeps the order; a peer starts its engine, which takes a minute or two."""
        self._order, self._random = order, random.Random(1)

    def measured(self, out: int, concurrency: int, count: int) -> dict[str, Any]:
        """So many repeats of one load, and the arrivals of one more."""
        self._generate(concurrency, 16)
        repeats = []
        for _ in range(count):
            began, _ = self._generate(concurrency, 1)
            prompts_s = time.monotonic() - began
            began, tokens = self._generate(concurrency, out)
            repeats.append({"began": began, "ended": time.monotonic(), "prompts_s": prompts_s, "tokens": tokens})
        return {"repeats": repeats, "streams": self._stepped(concurrency, out)}

    @abstractmethod
    def looped(self, longest: int, concurrency: int, seconds: float) -> dict[str, Any]:
        """A closed loop: what came in `seconds` after the lead, as paceline's side counts it."""

    @abstractmethod
    def _generate(self, count: int, out: int) -> tuple[float, int]:
        """When the load began, and how many tokens came."""

    @abstractmethod
    def _stepped(self, count: int, out: int) -> Streams:
        """The arrivals of one load."""

    def _tokens(self, count: int) -> list[list[int]]:
        """Prompts."""
        ids = range(2, self._order["vocab"])
        return [self._random.choices(ids, k=self._order["prompt"]) for _ in range(count)]


class Vllm(Engine):
    """vLLM."""

    def __init__(self, order: dict[str, Any]) -> None:
        """Starts it."""
        super().__init__(order)
        self._vllm: Any = importlib.import_module("vllm")
        self.version = str(self._vllm.__version__)
        self._llm = self._vllm.LLM(
            model=order["target"],
            load_format="dummy",
            skip_tokenizer_init=True,
            dtype="bfloat16",
            seed=0,
            max_model_len=order["context"],
            max_num_seqs=order["slots"],
            max_num_batched_tokens=BATCHED_TOKENS,
            gpu_memory_utilization=order["memory_fraction"],
            enable_prefix_caching=False,
            speculative_config=self._speculation(),
        )

    def looped(self, longest: int, concurrency: int, seconds: float) -> dict[str, Any]:
        """A closed loop: what came in `seconds` after the lead, as paceline's side counts it."""
        prompts, lengths = self._prompts(POOL), random.Random(longest)
        engine, numbers = self._llm.llm_engine, itertools.count()
        began = time.monotonic()
        first, last = began + self._order["lead_s"], began + self._order["lead_s"] + seconds
        started: dict[str, float] = {}
        arrived: list[tuple[float, str, int]] = []

        def start() -> None:
            number = next(numbers)
            name, out = f"looped-{began}-{number}", lengths.randint(longest // 4, longest)
            started[name] = time.monotonic()
            engine.add_request(name, prompts[number % POOL], self._sampling(out, output_kind=self._delta()))

        for _ in range(concurrency):
            start()
        while engine.has_unfinished_requests():
            for output in engine.step():
                now, fresh = time.monotonic(), len(output.outputs[0].token_ids)
                if fresh:
                    arrived.append((now, output.request_id, fresh))
                if output.finished and now < last:
                    start()
        streams: dict[str, list[tuple[float, int]]] = {}
        for at, name, count in arrived:
            if started[name] >= first:
                streams.setdefault(name, []).append((at - started[name], count))
        tokens = sum(count for at, _, count in arrived if first <= at < last)
        repeat = {"began": first, "ended": last, "prompts_s": 0.0, "tokens": tokens}
        return {"repeats": [repeat], "streams": list(streams.values())}

    def _delta(self) -> Any:
        return importlib.import_module("vllm.sampling_params").RequestOutputKind.DELTA

    def _speculation(self) -> dict[str, Any] | None:
        if not self._order["k"]:
            return None
        return {
            "method": "dflash",
            "model": self._order["drafter"],
            "num_speculative_tokens": self._order["k"],
            "rejection_sample_method": "synthetic",
            "synthetic_acceptance_rates": self._order["rates"],
        }

    def _prompts(self, count: int) -> list[Any]:
        prompt_of = importlib.import_module("vllm.inputs").TokensPrompt
        return [prompt_of(prompt_token_ids=one) for one in self._tokens(count)]

    def _sampling(self, out: int, **others: Any) -> Any:
        return self._vllm.SamplingParams(
            temperature=0.0, max_tokens=out, min_tokens=out, ignore_eos=True, detokenize=False, **others
        )

    def _generate(self, count: int, out: int) -> tuple[float, int]:
        """When the load began, and how many tokens came."""
        prompts, sampling = self._prompts(count), self._sampling(out)
        began = time.monotonic()
        outputs = self._llm.generate(prompts, sampling, use_tqdm=False)
        return began, sum(len(one.outputs[0].token_ids) for one in outputs)

    def _stepped(self, count: int, out: int) -> list[list[tuple[float, int]]]:
        """Of each stream when tokens arrived since the begin, and how many."""
        sampling = self._sampling(out, output_kind=self._delta())
        prompts, engine = self._prompts(count), self._llm.llm_engine
        streams: dict[str, list[tuple[float, int]]] = {}
        began = time.monotonic()
        for index, prompt in enumerate(prompts):
            engine.add_request(f"stepped-{index}", prompt, sampling)
        while engine.has_unfinished_requests():
            for output in engine.step():
                fresh = len(output.outputs[0].token_ids)
                if fresh:
                    streams.setdefault(output.request_id, []).append((time.monotonic() - began, fresh))
        return list(streams.values())


class Sglang(Engine):
    """SGLang; the environment tells it how many tokens its verify steps bring."""

    def __init__(self, order: dict[str, Any]) -> None:
        """Starts it."""
        super().__init__(order)
        sglang: Any = importlib.import_module("sglang")
        self.version = str(sglang.__version__)
        self._engine = sglang.Engine(
            model_path=order["target"],
            load_format="dummy",
            skip_tokenizer_init=True,
            dtype="bfloat16",
            random_seed=0,
            context_length=order["context"],
            max_running_requests=order["slots"],
            cuda_graph_max_bs_decode=order["slots"],
            mem_fraction_static=order["memory_fraction"],
            disable_radix_cache=True,
            attention_backend="fa3",
            sampling_backend="pytorch",
            grammar_backend="none",
            log_level="warning",
            **self._speculation(),
        )

    def looped(self, longest: int, concurrency: int, seconds: float) -> dict[str, Any]:
        """A closed loop: what came in `seconds` after the lead, as paceline's side counts it."""
        return self._run(self._looped(longest, concurrency, seconds))  # type: ignore[no-any-return]

    async def _looped(self, longest: int, concurrency: int, seconds: float) -> dict[str, Any]:
        prompts, lengths = itertools.cycle(self._tokens(POOL)), random.Random(longest)
        first = time.monotonic() + self._order["lead_s"]
        last = first + seconds
        arrived: list[tuple[float, float, int]] = []
        streams: Streams = []

        async def place() -> None:
            while (started := time.monotonic()) < last:
                out = lengths.randint(longest // 4, longest)
                stream = await self._stream(next(prompts), out, started)
                arrived.extend((started + at, started, count) for at, count in stream)
                if started >= first:
                    streams.append(stream)

        await asyncio.gather(*(place() for _ in range(concurrency)))
        tokens = sum(count for at, _, count in arrived if first <= at < last)
        repeat = {"began": first, "ended": last, "prompts_s": 0.0, "tokens": tokens}
        return {"repeats": [repeat], "streams": streams}

    def _speculation(self) -> dict[str, Any]:
        if not self._order["k"]:
            return {}
        return {
            "speculative_algorithm": "DFLASH",
            "speculative_draft_model_path": self._order["drafter"],
            "speculative_draft_load_format": "dummy",
            "speculative_num_draft_tokens": self._order["k"] + 1,
        }

    def _run(self, work: Any) -> Any:
        """What a coroutine of ours returns, on the engine's loop."""
        return self._engine.loop.run_until_complete(work)

    def _sampling(self, out: int) -> dict[str, Any]:
        return {"temperature": 0.0, "max_new_tokens": out, "ignore_eos": True}

    def _generate(self, count: int, out: int) -> tuple[float, int]:
        prompts, began = self._tokens(count), time.monotonic()
        outputs = self._engine.generate(input_ids=prompts, sampling_params=self._sampling(out))
        return began, sum(one["meta_info"]["completion_tokens"] for one in outputs)

    def _stepped(self, count: int, out: int) -> Streams:
        prompts, began = self._tokens(count), time.monotonic()

        async def all_of_them() -> Streams:
            return await asyncio.gather(*(self._stream(prompt, out, began) for prompt in prompts))

        return self._run(all_of_them())  # type: ignore[no-any-return]

    async def _stream(self, prompt: list[int], out: int, began: float) -> list[tuple[float, int]]:
        options = {"input_ids": prompt, "sampling_params": self._sampling(out), "stream": True}
        arrivals, seen = [], 0
        async for chunk in await self._engine.async_generate(**options):
            count = chunk["meta_info"]["completion_tokens"]
            if count > seen:
                arrivals.append((time.monotonic() - began, count - seen))
            seen = count
        return arrivals


PEERS = {"vllm": Vllm, "sglang": Sglang}


def main(order_file: str, answer_file: str) -> int:
    """Runs what the order names and writes the answer."""
    order = json.loads(Path(order_file).read_text())
    engine: Engine = PEERS[order["peer"]](order)
    measured = [
        engine.looped(job["out"], job["concurrency"], job["seconds"])
        if job["seconds"]
        else engine.measured(job["out"], job["concurrency"], job["repeats"])
        for job in order["jobs"]
    ]
    Path(answer_file).write_text(json.dumps({"version": engine.version, "measured": measured}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
