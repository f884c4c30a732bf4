"""A public gateway (smg) serves OpenAI's protocol in front of ours; asked by the real openai client."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.interop.peers import PEERS, REPOSITORY, fetch, post, public_gateway, service
from tests.support.fakes_tokenizer import write_tokenizer

CHAT = {"model": "fake", "max_tokens": 20, "messages": [{"role": "user", "content": "hi"}]}


@dataclass(frozen=True)
class Line:
    """Addresses of the processes in a row."""

    base: str
    metrics: str


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    folder = write_tokenizer(tmp_path_factory.mktemp("model"))
    with service("tests.bench.gateway", "--serve-target", "0.005") as target:
        flags = ("--tokenizer", str(folder), "--targets", target["grpc"], "--vllm-engine", "true")
        with service("services.gateway", *flags) as gateway, public_gateway(gateway["grpc"], Path(folder)) as base:
            yield Line(base, gateway["metrics"])


def delivered(line: Line) -> float:
    page = fetch(f"http://{line.metrics}/metrics").splitlines()
    return float(next(one.split()[-1] for one in page if one.startswith("paceline_gateway_delivered_tokens_total")))


def test_chat_and_completions_whole_and_streamed_say_the_same(line: Line) -> None:
    before = delivered(line)
    command = [str(PEERS / "bin" / "python"), str(REPOSITORY / "tests" / "interop" / "ask_openai.py"), line.base]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=100).stdout)
    for answer in found.values():
        assert answer["whole"] == answer["streamed"] != ""
        assert answer["reasons"] == ["length", "length"]
        for usage in answer["usage"]:
            assert usage["completion_tokens"] == 48
            details: dict[str, Any] = usage["completion_tokens_details"]
            accepted, rejected = details["accepted_prediction_tokens"], details["rejected_prediction_tokens"]
            # The fake drafts three tokens a round; the first token is the prefill's.
            rounds = 48 - 1 - accepted
            assert accepted > 0
            assert accepted + rejected == 3 * rounds
    assert delivered(line) - before == 4 * 48


def test_a_stop_string_ends_the_answer(line: Line) -> None:
    asked = {"model": "fake", "prompt": "the fox", "max_tokens": 48, "seed": 5, "temperature": 0}
    _, free = post(f"{line.base}/v1/completions", asked)
    text = free["choices"][0]["text"]
    stop = next(text[index : index + 2] for index in range(8, 40) if text[index : index + 2].isascii())
    status, cut = post(f"{line.base}/v1/completions", asked | {"stop": [stop]})
    assert status == 200
    assert cut["choices"][0]["finish_reason"] == "stop"
    assert cut["choices"][0]["text"] == text[: text.index(stop)]
    assert cut["usage"]["completion_tokens"] < 48


@pytest.mark.parametrize(
    "wish",
    [
        {"n": 2},
        {"messages": [{"role": "user", "content": "word " * 20_000}]},
        {"temperature": 9.0},
        {"model": "another"},
    ],
)
def test_what_is_not_offered_is_a_client_error(line: Line, wish: dict[str, Any]) -> None:
    status, _ = post(f"{line.base}/v1/chat/completions", CHAT | wish)
    assert 400 <= status < 500
