"""generation_config.json: its sampling is what requests over HTTP take where they state nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from services.common.request.errors import PacelineError
from services.common.request.sampling import SamplingParams
from services.gateway.http.reading.body import parsed
from services.gateway.http.reading.convert import Headers, chat_query, completion_query
from services.gateway.http.reading.recommended import by_default, read_recommended
from services.gateway.http.schema.bodies import ChatBody, CompletionBody
from services.gateway.prompts.tokenizer import TokenizerError
from services.gateway.settings import GatewaySettings

QWEN = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "eos_token_id": [1, 2], "max_new_tokens": 9}
ALL = {
    "temperature": 0.5, "top_p": 0.25, "top_k": 7, "min_p": 0.125,
    "repetition_penalty": 1.25, "presence_penalty": 1.5, "frequency_penalty": -0.5,
}  # fmt: skip
OTHERS = {
    "temperature": 1.5, "top_p": 0.5, "top_k": 3, "min_p": 0.25,
    "repetition_penalty": 2.0, "presence_penalty": 0.5, "frequency_penalty": 0.25,
}  # fmt: skip


def read(folder: Path, said: object) -> dict[str, float]:
    (folder / "generation_config.json").write_text(said if isinstance(said, str) else json.dumps(said))
    return read_recommended(folder)


def chat(recommended: dict[str, float], options: dict[str, Any]) -> SamplingParams:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}]} | options
    convert = by_default(recommended, chat_query)
    return convert(parsed(ChatBody, json.dumps(body).encode()), Headers()).sampling


def completion(recommended: dict[str, float], options: dict[str, Any]) -> SamplingParams:
    convert = by_default(recommended, completion_query)
    return convert(
        parsed(CompletionBody, json.dumps({"model": "m", "prompt": "x"} | options).encode()), Headers()
    ).sampling


@pytest.mark.parametrize("sampling", [chat, completion])
def test_what_a_request_leaves_out_is_as_recommended(sampling: Any, tmp_path: Path) -> None:
    recommended = read(tmp_path, ALL)
    assert sampling(recommended, {}) == SamplingParams(**ALL)  # type: ignore[arg-type]
    assert sampling(recommended, OTHERS) == SamplingParams(**OTHERS)  # type: ignore[arg-type]
    for name, value in OTHERS.items():
        assert sampling(recommended, {name: value}) == SamplingParams(**ALL | {name: value})  # type: ignore[arg-type]
        assert sampling(recommended, {name: None}) == SamplingParams(**ALL)  # type: ignore[arg-type]
    assert sampling(recommended, {"temperature": 0}).greedy
    assert sampling(recommended, {"top_k": -1}).top_k == 0
    assert sampling(read(tmp_path, QWEN), {}) == SamplingParams(temperature=0.6, top_k=20, top_p=0.95)


@pytest.mark.parametrize("sampling", [chat, completion])
def test_without_the_file_the_defaults_are_those_of_openai(sampling: Any, tmp_path: Path) -> None:
    assert read_recommended(tmp_path) == {}
    assert sampling({}, {}) == SamplingParams(temperature=1.0)


def test_do_sample_says_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, {"do_sample": False}) == {}
    assert read(tmp_path, {"do_sample": False, "temperature": 0.6}) == {"temperature": 0.6}


@pytest.mark.parametrize("name", ALL)
def test_what_no_request_may_state_is_left_out(name: str, tmp_path: Path) -> None:
    values: list[Any] = [None, True, "1", [1], {}, 10**400, -(10**400), -50, float("nan"), float("inf")]
    for value in values:
        assert read(tmp_path, {name: value}) == {}


def test_values_that_stand_for_off_are_off(tmp_path: Path) -> None:
    assert read(tmp_path, {"top_k": -1, "temperature": 1e-9}) == {"top_k": 0, "temperature": 0.0}
    assert isinstance(read(tmp_path, {"top_k": 20.0})["top_k"], int)


@pytest.mark.parametrize(
    "text", ["{", "[]", "[" * 200_000, "\ud800".encode("utf-8", "surrogatepass").decode("latin-1")]
)
def test_a_damaged_file_is_named(text: str, tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"generation_config\.json"):
        read(tmp_path, text)


def test_the_setting_is_one_of_three_words() -> None:
    for word in ("auto", "none", "vllm"):
        assert GatewaySettings(tokenizer="x", targets=("y:1",), generation_config=word).generation_config == word
    with pytest.raises(PacelineError, match="generation_config"):
        GatewaySettings(tokenizer="x", targets=("y:1",), generation_config="on")
