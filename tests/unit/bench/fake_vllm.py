"""Packages of the peers' names whose engines make up tokens at once."""

from __future__ import annotations

from pathlib import Path

FAKE_VLLM = """
import time

__version__ = "0.99"


class SamplingParams:
    def __init__(self, **options):
        self.out = options["max_tokens"]


class Output:
    def __init__(self, request_id, tokens, ended=False):
        self.request_id, self.outputs, self.token_ids = request_id, [self], [7] * tokens
        self.finished = ended


class Engine:
    def __init__(self):
        self.left = {}

    def add_request(self, request_id, prompt, sampling):
        self.left[request_id] = sampling.out

    def has_unfinished_requests(self):
        return bool(self.left)

    def step(self):
        ended = [name for name, left in self.left.items() if left <= 4]
        self.left = {name: left - 4 for name, left in self.left.items() if left > 4}
        return [Output(name, 4) for name in self.left] + [Output(name, 0, True) for name in ended]


class LLM:
    def __init__(self, **options):
        assert options["load_format"] == "dummy" and not options["enable_prefix_caching"], options
        self.llm_engine, drafts = Engine(), options["speculative_config"]
        assert drafts is None or len(drafts["synthetic_acceptance_rates"]) == drafts["num_speculative_tokens"]

    def generate(self, prompts, sampling, use_tqdm):
        assert all(len(prompt["prompt_token_ids"]) == 512 for prompt in prompts)
        time.sleep(1e-4 * sampling.out)
        return [Output(str(index), sampling.out) for index, _ in enumerate(prompts)]
"""


def write_fake_vllm(folder: Path) -> None:
    """Writes it where vLLM's packages are looked for."""
    package = folder / "vllm"
    package.mkdir()
    (package / "__init__.py").write_text(FAKE_VLLM)
    (package / "inputs.py").write_text("TokensPrompt = dict\n")
    (package / "sampling_params.py").write_text("class RequestOutputKind:\n    DELTA = 1\n")


FAKE_SGLANG = """
import asyncio
import os
import time

__version__ = "0.5"


def told(count):
    return {"output_ids": [7] * count, "meta_info": {"completion_tokens": count}}


class Engine:
    def __init__(self, **options):
        assert options["load_format"] == "dummy" and options["disable_radix_cache"], options
        self.rows = options.get("speculative_num_draft_tokens", 1)
        assert ("SGLANG_SIMULATE_ACC_LEN" in os.environ) == (self.rows > 1)
        assert 1 <= float(os.environ.get("SGLANG_SIMULATE_ACC_LEN", 1)) <= self.rows
        self.loop = asyncio.new_event_loop()

    def generate(self, input_ids, sampling_params):
        time.sleep(1e-4 * sampling_params["max_new_tokens"])
        return [told(sampling_params["max_new_tokens"]) for _ in input_ids]

    async def async_generate(self, input_ids, sampling_params, stream):
        assert len(input_ids) == 512 and stream

        async def chunks():
            most = sampling_params["max_new_tokens"]
            for count in range(0, most + self.rows, self.rows):
                await asyncio.sleep(1e-4)
                yield told(min(count, most))

        return chunks()
"""


def write_fake_sglang(folder: Path) -> None:
    """Writes it where SGLang's packages are looked for."""
    (folder / "sglang").mkdir()
    (folder / "sglang" / "__init__.py").write_text(FAKE_SGLANG)
