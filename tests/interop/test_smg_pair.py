"""A public gateway (smg) in front of a whole pair: what it tells as usage is what the target counted."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from deploy.stack import EMBEDDED
from tests.integration.pair import PairProcesses
from tests.interop.peers import fetch, post, public_gateway, service
from tests.support.tiny_checkpoints import TinyPair

TOKENS = 64


@dataclass(frozen=True)
class Line:
    """Addresses of the processes in a row."""

    base: str
    target_metrics: str

    def counted(self, name: str) -> float:
        """A counter of the target."""
        page = fetch(f"http://{self.target_metrics}/metrics").splitlines()
        return float(next(one.split()[-1] for one in page if one.startswith((f"{name} ", f"{name}{{"))))


@contextmanager
def pair(folder: Path, name: str = "fake") -> Iterator[PairProcesses]:
    started = PairProcesses(folder, TinyPair(EMBEDDED / "target", EMBEDDED / "drafter"), ("--model-name", name))
    try:
        started.wait_ready()
        started.wait_attached(1)
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="module")
def line() -> Iterator[Line]:
    with tempfile.TemporaryDirectory(prefix="pl") as made, pair(Path(made)) as started:
        model = copytree(EMBEDDED / "target", Path(made) / "fake")
        flags = ("--tokenizer", str(model), "--targets", started.bound["grpc"], "--vllm-engine", "true")
        with service("services.gateway", *flags) as gateway, public_gateway(gateway["grpc"], model) as base:
            yield Line(base, started.bound["metrics"])


def test_usage_is_what_the_target_counted(line: Line) -> None:
    names = ("paceline_spec_decode_num_accepted_tokens_total", "paceline_spec_decode_num_draft_tokens_total")
    before = [line.counted(name) for name in names]
    accepted = rejected = 0
    for number, temperature in enumerate((0.0, 0.0, 0.8, 0.8)):
        asked = {"prompt": "def main(", "max_tokens": TOKENS, "temperature": temperature, "seed": number}
        status, answer = post(f"{line.base}/v1/completions", asked | {"model": "fake"})
        assert status == 200
        details = answer["usage"]["completion_tokens_details"]
        accepted += details["accepted_prediction_tokens"]
        rejected += details["rejected_prediction_tokens"]
    counted_accepted, counted_drafted = (line.counted(name) - was for name, was in zip(names, before, strict=True))
    assert accepted > 0
    assert rejected > 0
    assert (accepted, accepted + rejected) == (counted_accepted, counted_drafted)


def test_an_answer_that_smg_wants_in_a_form_is_held_to_it(line: Line) -> None:
    """smg hands the schema on; the fake target of other tests has no grammars, so that it can only refuse."""
    schema = {"type": "object", "properties": {"on": {"enum": ["yes", "no"]}}, "required": ["on"]}
    form = {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": schema | {"additionalProperties": False}},
    }
    talk = [{"role": "user", "content": "on?"}]
    asked = {"model": "fake", "messages": talk, "max_tokens": 200, "seed": 3, "response_format": form}
    status, answer = post(f"{line.base}/v1/chat/completions", asked)
    assert status == 200, answer
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert json.loads(choice["message"]["content"])["on"] in ("yes", "no")


@pytest.mark.parametrize("dropped", [{"logit_bias": {"10": 100}}, {"logprobs": 3}, {"best_of": 2}, {"suffix": " end"}])
def test_options_that_smg_drops_change_nothing_as_the_gateway_s_page_says(line: Line, dropped: dict[str, Any]) -> None:
    asked = {"model": "fake", "prompt": "def main(", "max_tokens": 8, "temperature": 0.0}
    _, without = post(f"{line.base}/v1/completions", asked)
    status, answer = post(f"{line.base}/v1/completions", asked | dropped)
    assert status == 200
    assert answer["choices"][0]["text"] == without["choices"][0]["text"] + dropped.get("suffix", "")
    assert not answer["choices"][0].get("logprobs")
