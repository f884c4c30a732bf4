"""Several models behind one gateway: each has pairs, a tokenizer, limits and defaults of its own."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from services.common.pb.paceline.v1 import inference_pb2
from services.common.request.errors import PacelineError, Reason
from services.gateway.settings import GatewaySettings
from tests.integration.gateway_stack import WAIT_S, Harness, ask_for, harness, rich
from tests.integration.http_stack import CHAT, COMPLETIONS, MODELS, chat, completion, serving
from tests.integration.test_gateway_stream import until
from tests.support.fakes_target import FakeTarget
from tests.support.fakes_tokenizer import write_tokenizer
from tests.support.http_client import Client

SMALL, LARGE = 300, 512
"""Ids of the two vocabularies: the smaller one needs more tokens for the same text."""
TEXT = "the quick brown fox jumps over the lazy dog"


def fakes() -> list[FakeTarget]:
    return [
        FakeTarget("s-0", model="small", vocab_size=SMALL, context_limit=512),
        FakeTarget("l-0", model="large", vocab_size=LARGE, context_limit=2048),
        FakeTarget("l-1", model="large", vocab_size=LARGE, context_limit=2048),
    ]


def folders(folder: Path) -> dict[str, Any]:
    """Settings of both models; the small one has defaults of its makers."""
    small, large = write_tokenizer(folder / "small", SMALL), write_tokenizer(folder / "large", LARGE)
    (small / "generation_config.json").write_text(json.dumps({"temperature": 0.0}))
    return {"models": (f"small={small}", f"large={large}"), "model_aliases": ("gpt-4o=large", "mini=small")}


@asynccontextmanager
async def both(folder: Path, **changes: Any) -> AsyncIterator[tuple[Harness, Client]]:
    """A gateway that has reached the pairs of both models."""
    async with serving(folder, fakes(), **(folders(folder) | changes)) as (one, http):
        await until(lambda: len([link for link in one.app._pool.links if link.candidate()]) == 3)
        yield one, http


async def test_both_are_listed_with_their_limits_and_aliases(tmp_path: Path) -> None:
    async with both(tmp_path) as (one, http):
        listed = {model["id"]: model for model in (await http.get(MODELS)).json["data"]}
        assert {name: (model["root"], model["max_model_len"]) for name, model in listed.items()} == {
            "small": ("small", 512), "mini": ("small", 512), "large": ("large", 2048), "gpt-4o": ("large", 2048),
        }  # fmt: skip
        assert (await http.get(f"{MODELS}/gpt-4o")).json == listed["gpt-4o"]
        told = await one.stub.ListModels(inference_pb2.ListModelsRequest(), timeout=WAIT_S)
        by_name = {each.model.name: each for each in told.models}
        assert {name: (each.model.context_limit, [*each.aliases]) for name, each in by_name.items()} == {
            "small": (512, ["mini"]), "large": (2048, ["gpt-4o"]),
        }  # fmt: skip
        assert all(each.model.limits["default_max_tokens"] == 256 for each in told.models)
        asked = inference_pb2.GetModelRequest(model="gpt-4o")
        assert (await one.stub.GetModel(asked, timeout=WAIT_S)).model.name == "large"


async def test_a_request_goes_to_pairs_of_its_model_with_tokens_of_its_tokenizer(tmp_path: Path) -> None:
    async with both(tmp_path) as (one, http):
        small, *large = one.targets
        for _ in range(6):
            await one.ask(ask_for(TEXT, model="large", max_tokens=4))
        assert not small.starts
        assert {start.prompt_length for target in large for start in target.starts} == {len(_ids(tmp_path / "large"))}
        reply = (await http.post(COMPLETIONS, completion(TEXT, model="mini", max_tokens=4))).json
        assert (reply["model"], reply["usage"]["prompt_tokens"]) == ("mini", len(_ids(tmp_path / "small")))
        (start,) = small.starts
        assert [*start.token_ids] == _ids(tmp_path / "small") != _ids(tmp_path / "large")
        assert start.sampling.temperature == 0.0, "the small model's makers recommend it"
        await http.post(CHAT, chat(model="gpt-4o"))
        assert next(start for target in large for start in target.starts[-1:] if start.sampling.temperature == 1.0)
        tokens = (await http.post("/tokenize", {"model": "small", "prompt": TEXT})).json
        assert tokens["tokens"] == _ids(tmp_path / "small")
        body = {"model": "small", "tokens": tokens["tokens"]}
        assert (await http.post("/detokenize", body)).json["prompt"] == TEXT


def _ids(folder: Path) -> list[int]:
    from services.gateway.prompts.tokenizer import load_tokenizer

    return [*load_tokenizer(folder).encode(TEXT, 4096)]


async def test_an_unknown_model_does_not_exist_and_none_is_asked_for(tmp_path: Path) -> None:
    async with both(tmp_path) as (one, http):
        for path, body in ((CHAT, chat(model="other")), (COMPLETIONS, completion(model="other"))):
            reply = await http.post(path, body)
            assert (reply.status, reply.error["code"], reply.error["param"]) == (404, "model_not_found", "model")
            assert reply.error["message"] == "The model `other` does not exist. Served: `small`, `large`."
        for name in ("other", ""):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await one.ask(ask_for(model=name))
            assert refused.value.code() is grpc.StatusCode.NOT_FOUND
            assert rich(refused.value).reason is Reason.UNKNOWN_MODEL
        assert (await http.get(f"{MODELS}/other")).status == 404
        assert not any(target.starts for target in one.targets)


async def test_one_of_them_may_take_requests_without_a_name(tmp_path: Path) -> None:
    async with both(tmp_path, model="small") as (one, _):
        await one.ask(ask_for(max_tokens=2))
        assert len(one.targets[0].starts) == 1


async def test_output_goes_on_with_pairs_of_its_model_alone(tmp_path: Path) -> None:
    async with both(tmp_path) as (one, _):
        small, *large = one.targets
        for target in large:
            target.slow(0.05)
        running = asyncio.create_task(one.ask(ask_for(TEXT, model="large", max_tokens=48)))
        await until(lambda: any(target.active and target.committed > 8 for target in large))
        dies, stays = large if large[0].active else reversed(large)
        stays.slow(0.0)
        await dies.die()
        answer = await running
        assert answer.final is not None and answer.final.usage.migrations == 1
        assert len(answer.tokens) == 48
        assert not small.starts


async def test_a_model_whose_pairs_are_gone_is_refused_and_others_served(tmp_path: Path) -> None:
    async with both(tmp_path, wait_target_s=0.2) as (one, http):
        await one.targets[0].die()
        await until(lambda: one.app._pool.links[0].candidate() is None)
        reply = await http.post(COMPLETIONS, completion(model="small"))
        assert (reply.status, reply.error["message"]) == (503, "no target of 'small' is ready")
        assert (await http.post(COMPLETIONS, completion(model="large"))).status == 200


async def test_metrics_and_status_tell_the_models_apart(tmp_path: Path) -> None:
    async with both(tmp_path) as (one, http):
        await http.post(COMPLETIONS, completion(model="mini"))
        await http.post(COMPLETIONS, completion(model="gpt-4o"))
        await http.post(COMPLETIONS, completion(model="other"))
        page = (await Client(one.bound.metrics).get("/metrics")).body.decode()
        samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
        calls = [one for one in samples if one.name == "paceline_gateway_requests_total" and one.value]
        assert {(each.labels["model_name"], each.labels["code"]): each.value for each in calls} == {
            ("small", "OK"): 1.0, ("large", "OK"): 1.0, ("several", "NOT_FOUND"): 1.0,
        }  # fmt: skip
        assert all(each.labels["model_name"] for each in samples if each.name.startswith("paceline_"))
        ready = [one for one in samples if one.name == "paceline_gateway_ready_targets"]
        assert {each.labels["model_name"]: each.value for each in ready} == {"small": 1.0, "large": 2.0}
        told = await one.stub.GetStatus(inference_pb2.GetStatusRequest(), timeout=WAIT_S)
        assert (told.model, sorted(told.models)) == ("", ["large", "small"])
        assert {pair.pair_id: pair.model for pair in told.each} == {"s-0": "small", "l-0": "large", "l-1": "large"}
        assert (await http.get("/v1/paceline/status")).json["each"][0]["model"] == "large"


async def test_without_names_the_first_target_decides_what_is_served(tmp_path: Path) -> None:
    """A request would else go to any of them, tokenised for one."""
    async with harness(tmp_path, [FakeTarget("a", model="one"), FakeTarget("b", model="two")]) as one:
        await until(lambda: any("other model" in link.away for link in one.app._pool.links))
        (away,) = [link for link in one.app._pool.links if link.away]
        served = one.app._pool.served
        assert f"not {served!r}" in away.away
        for _ in range(6):
            await one.ask(ask_for(max_tokens=2))
        assert sorted(len(target.starts) for target in one.targets) == [0, 6]
        index = next(number for number, target in enumerate(one.targets) if target.starts)
        await one.targets[index].die()
        await until(lambda: one.app._pool.served != served)
        await one.ask(ask_for(max_tokens=2))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"models": ("a",)}, "models"),
        ({"models": ("a=x", "a=y")}, "models"),
        ({"models": ("a=x", "b=y"), "model": "c"}, "model"),
        ({"models": ("a=x", "b=y"), "model_aliases": ("fast",)}, "model_aliases"),
        ({"models": ("a=x", "b=y"), "model_aliases": ("b=a",)}, "model_aliases"),
        ({"models": ("a=x", "b=y"), "model_aliases": ("fast=a", "fast=b")}, "model_aliases"),
        ({"models": ("a=x", "b=y"), "tool_parser": "c=hermes"}, "tool_parser"),
        ({"models": ("a=x", "b=y"), "tool_parser": "a=none-such"}, "tool_parser"),
        ({"models": ("a=x", "b=y"), "generation_config": "a=maybe"}, "generation_config"),
        ({"models": ("a=x", "b=y"), "vllm_engine": True}, "vllm_engine"),
        ({"models": ("a=x",), "tokenizer": "x"}, "tokenizer"),
        ({}, "tokenizer"),
    ],
)
def test_settings_that_leave_a_model_open_are_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(PacelineError) as refused:
        GatewaySettings(targets=("127.0.0.1:1",), **changes)
    assert refused.value.field == named


def test_values_by_model_leave_the_others_as_they_are() -> None:
    settings = GatewaySettings(
        targets=("127.0.0.1:1",), models=("a=/x", "b=/y=z"), tool_parser="hermes,b=qwen_xml", generation_config="a=none"
    )
    found = {one.name: (one.tokenizer, one.tool_parser, one.generation_config) for one in settings.served}
    assert found == {"a": ("/x", "hermes", "none"), "b": ("/y=z", "qwen_xml", "")}
