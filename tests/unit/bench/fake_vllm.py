"""A package of vLLM's name whose engine makes up tokens at once."""

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
