"""The bench of real text: both sides are asked for the same, and the table sets each beside the peer's best."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.bench.gpu.race.theirs import PeerOptions
from tests.bench.gpu.real_text import theirs
from tests.bench.gpu.real_text.loads import Load, Told, row_of, table
from tests.bench.nodes_offline import Pair
from tests.support.tiny_checkpoints import write_tiny

LOAD = Load(streams=3, temperature=0.8, tokens=9, repeats=2)
PROMPTS = [[5, 6, 7], [8, 9]]
ENDS = (2, 4)
FAKE = f"""
class SamplingParams:
    def __init__(self, **options):
        assert options["max_tokens"] == {LOAD.tokens} and options["stop_token_ids"] == {list(ENDS)}, options
        assert options["temperature"] == {LOAD.temperature} and options["output_kind"] == "final", options
        self.seed = options["seed"]


class Output:
    def __init__(self, length):
        self.outputs, self.token_ids, self.finished = [self], [1] * length, True


class Engine:
    def __init__(self):
        self.running, self.drafts = [], 0

    def add_request(self, name, prompt, sampling):
        assert prompt["prompt_token_ids"] == {PROMPTS}[sampling.seed % 2], prompt
        self.running.append(sampling.seed)
        assert len(self.running) <= {LOAD.streams}, "more at once than the load has"

    def get_num_unfinished_requests(self):
        return len(self.running)

    def has_unfinished_requests(self):
        return bool(self.running)

    def step(self):
        self.drafts += 4
        return [Output(self.running.pop(0) % 2 + 1)]


class Metric:
    def __init__(self, name, value):
        self.name, self.value = "vllm:spec_decode_num_" + name, value


class LLM:
    def __init__(self, **options):
        assert options["speculative_config"]["num_speculative_tokens"] == 7 and "load_format" not in options, options
        self.llm_engine = Engine()

    def get_metrics(self):
        drafts = self.llm_engine.drafts
        return [Metric("drafts", drafts), Metric("accepted_tokens", drafts * 3 // 2)]
"""


@pytest.fixture
def peer(tmp_path: Path) -> PeerOptions:
    """A package of vLLM's name whose engine answers at once, one request a step."""
    package = tmp_path / "vllm"
    package.mkdir()
    (package / "__init__.py").write_text(FAKE)
    (package / "inputs.py").write_text("TokensPrompt = dict\n")
    (package / "sampling_params.py").write_text("class RequestOutputKind:\n    FINAL_ONLY = 'final'\n")
    return PeerOptions(tmp_path, sys.executable)


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    """A tiny model that is served, which the peer gets as one file."""
    made = write_tiny(tmp_path / "models", family="llama")
    return Pair("pair", made.target, made.drafter, PROMPTS)


def test_peers_start_side_by_side_and_run_the_whole_load_in_turn(peer: PeerOptions, pair: Pair) -> None:
    """Each counts every answer, of prompts in turn, with no more at once; tokens a round come of its own counters.

    K = 5 is refused by this peer, which costs no rows of others.
    """
    with theirs.started(pair, [LOAD], (5, 7), peer, ENDS) as peers:
        for one in peers:
            one.wait_ready()
        rows = [one.rows() for one in peers]
    assert rows[0] == []
    ((row,),) = rows[1:]
    assert (row.system, row.k, row.streams, row.tau) == ("vllm", 7, 3, 2.5)
    assert row.least <= row.tokens_per_s <= row.most


def test_the_peer_reads_the_numbers_that_are_served(pair: Pair, tmp_path: Path) -> None:
    """Each tensor in bfloat16, under its own name, beside the configuration."""
    theirs.write_plain(pair.target, tmp_path / "plain")
    served, plain = (load_file(folder / "model.safetensors") for folder in (pair.target, tmp_path / "plain"))
    assert plain.keys() == served.keys()
    assert all(torch.equal(plain[name], served[name].bfloat16()) for name in plain)
    assert (tmp_path / "plain" / "config.json").read_bytes() == (pair.target / "config.json").read_bytes()


def test_a_row_has_the_median_of_its_repeats() -> None:
    told = [Told(2.0, 100, 3.0), Told(1.0, 100, 2.0), Told(4.0, 100, 2.5)]
    row = row_of("paceline", None, LOAD, told)
    assert (row.tokens_per_s, row.least, row.most, row.tau) == (50.0, 25.0, 100.0, 2.5)


def test_the_table_divides_by_the_best_of_the_peer_at_that_load() -> None:
    other = Load(streams=8, temperature=0.8, tokens=9, repeats=1)
    rows = [
        row_of("paceline", None, LOAD, [Told(1.0, 300, 3.0)]),
        row_of("vllm", 7, LOAD, [Told(1.0, 150, 3.0)]),
        row_of("vllm", 3, LOAD, [Told(1.0, 200, 2.0)]),
        row_of("vllm", 7, other, [Told(1.0, 900, 3.0)]),
    ]
    ours = next(line for line in table(rows).splitlines() if "paceline" in line)
    assert ours.split()[-1] == "1.50"
