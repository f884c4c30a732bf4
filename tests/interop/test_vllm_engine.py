"""The contract vllm.grpc.engine over a gateway and a fake target, asked directly."""

import asyncio
import hashlib
import io
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass

from services.common.request.constraint import Constraint, Form
from services.common.request.errors import PacelineError, Reason
from services.common.serving.channel import connect
from services.gateway.vllm import vllm_pb2, vllm_service
from services.gateway.vllm.convert import query
from tests.integration.gateway_stack import WAIT_S, Harness, ask_for, harness, rich
from tests.integration.test_gateway_stream import until
from tests.support.fakes_target import FakeTarget

SERVICE = "vllm.grpc.engine.VllmEngine"

pb2 = vllm_pb2()


def asked(**fields: Any) -> Any:
    params = pb2.SamplingParams(max_tokens=40, temperature=0.0, seed=5, **fields.pop("params", {}))
    tokenized = pb2.TokenizedInput(input_ids=[1, 2, 3])
    return pb2.GenerateRequest(request_id="r", tokenized=tokenized, sampling_params=params, **fields)


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Harness]:
    async with harness(tmp_path, [FakeTarget(pace_s=0.01)], vllm_engine=True) as made:
        yield made


async def generate(one: Harness, request: Any) -> list[Any]:
    async with connect(one.bound.grpc) as channel:
        method: Any = channel.unary_stream(
            f"/{SERVICE}/Generate", pb2.GenerateRequest.SerializeToString, pb2.GenerateResponse.FromString
        )
        return [response async for response in method(request, timeout=WAIT_S)]


async def call(one: Harness, name: str, request: Any, answer: Any) -> Any:
    async with connect(one.bound.grpc) as channel:
        method: Any = channel.unary_unary(f"/{SERVICE}/{name}", type(request).SerializeToString, answer.FromString)
        return await method(request, timeout=WAIT_S)


async def test_streamed_and_whole_answers_hold_the_tokens_of_our_own_contract(one: Harness) -> None:
    chunks = await generate(one, asked(stream=True, params={"logprobs": 2}))
    tokens = [token for response in chunks[:-1] for token in response.chunk.token_ids]
    complete = chunks[-1].complete
    assert len(tokens) == 40
    assert [*complete.output_ids] == tokens
    assert (complete.finish_reason, complete.prompt_tokens, complete.completion_tokens) == ("length", 3, 40)
    assert [*complete.output_logprobs.token_ids] == tokens
    whole = await generate(one, asked())
    assert len(whole) == 1
    assert [*whole[0].complete.output_ids] == tokens
    request = ask_for(max_tokens=40, seed=5)
    request.prompt.tokens.ids.extend([1, 2, 3])
    own = await one.ask(request)
    assert own.tokens == tokens
    assert own.final is not None
    assert complete.spec_draft_tokens == own.final.speculation.drafted
    assert complete.spec_accepted_tokens == own.final.speculation.accepted


async def test_stops_are_named(one: Harness) -> None:
    tokens = [*(await generate(one, asked()))[0].complete.output_ids]
    stopped = (await generate(one, asked(params={"stop_token_ids": [tokens[9]]})))[0].complete
    assert (stopped.finish_reason, stopped.matched_token_id) == ("stop", tokens[9])
    assert [*stopped.output_ids] == tokens[: tokens.index(tokens[9]) + 1]


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"params": {"n": 2}}, "sampling_params.n"),
        ({"params": {"prompt_logprobs": 1}}, "sampling_params.prompt_logprobs"),
        ({"params": {"truncate_prompt_tokens": 1}}, "sampling_params.truncate_prompt_tokens"),
        ({"params": {"structural_tag": "{}"}}, "sampling_params.structural_tag"),
        ({"data_parallel_rank": 0}, "data_parallel_rank"),
        ({"kv_transfer_params_json": "{}"}, "kv_transfer_params_json"),
        ({"mm_inputs": pb2.MultimodalInputs()}, "mm_inputs"),
        ({"media_refs": pb2.MediaRefs()}, "media_refs"),
    ],
)
def test_what_is_not_offered_is_refused_by_name(fields: dict[str, Any], name: str) -> None:
    with pytest.raises(PacelineError) as refused:
        query(asked(**fields), 16)
    assert (refused.value.reason, refused.value.field) == (Reason.UNSUPPORTED, name)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (
            {"json_schema": '{"type": "integer"}'},
            Constraint(Form.JSON, '{"type": "integer"}', "sampling_params.json_schema"),
        ),
        ({"json_object": True}, Constraint(Form.JSON, '{"type": "object"}', "sampling_params.json_object")),
        ({"json_object": False}, None),
        ({"regex": "a|b"}, Constraint(Form.REGEX, "a|b", "sampling_params.regex")),
        ({"grammar": "start: A"}, Constraint(Form.GRAMMAR, "start: A", "sampling_params.grammar")),
        (
            {"choice": pb2.ChoiceConstraint(choices=["a", "b"])},
            Constraint(Form.CHOICE, '["a", "b"]', "sampling_params.choice"),
        ),
    ],
)
def test_an_answer_may_have_a_form(params: dict[str, Any], expected: Constraint | None) -> None:
    for first in (False, True):
        found = query(asked(params=params | {"grammar_from_first_token": first}), 16)
        assert (found.constraint, found.thinks) == (expected, not first)


def test_zero_means_not_set_where_the_contract_cannot_say_absent() -> None:
    plain = query(pb2.GenerateRequest(text="x", sampling_params=pb2.SamplingParams()), 16)
    assert (plain.sampling.top_p, plain.sampling.repetition_penalty, plain.sampling.temperature) == (1.0, 1.0, 1.0)
    assert (plain.stopping.max_tokens, plain.seed_given) == (16, False)
    assert query(asked(), 16).sampling.temperature == 0.0


async def test_the_validator_is_the_gateways_own(one: Harness) -> None:
    for params, field in (({"top_p": float("nan")}, "sampling.top_p"), ({"logprobs": -1}, "logprobs")):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await generate(one, asked(params=params))
        assert rich(refused.value).field == field


async def test_abort_ends_the_request_and_spares_the_others(one: Harness) -> None:
    long = asked(params={"ignore_eos": True})
    long.sampling_params.max_tokens = 3000
    other = asked(stream=True)
    other.request_id = "r1"
    tasks = [asyncio.create_task(generate(one, request)) for request in (long, other)]
    await until(lambda: one.targets[0].active == 2)
    await call(one, "Abort", pb2.AbortRequest(request_ids=["r", "unknown"]), pb2.AbortResponse)
    await until(lambda: one.targets[0].cancels)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[0], grpc.aio.AioRpcError)
    assert not isinstance(results[1], BaseException)
    assert len(one.targets[0].cancels) == 1


async def test_model_server_and_load_are_told(one: Harness) -> None:
    info = await call(one, "GetModelInfo", pb2.GetModelInfoRequest(), pb2.GetModelInfoResponse)
    assert (info.served_model_name, info.vocab_size, info.max_context_length) == ("fake", 512, 4096)
    assert (await call(one, "HealthCheck", pb2.HealthCheckRequest(), pb2.HealthCheckResponse)).healthy
    server = await call(one, "GetServerInfo", pb2.GetServerInfoRequest(), pb2.GetServerInfoResponse)
    assert server.server_type == "vllm-grpc"
    loads = await call(one, "GetLoads", pb2.GetLoadsRequest(), pb2.GetLoadsResponse)
    assert [one.num_running_reqs for one in loads.loads] == [0]
    with pytest.raises(grpc.aio.AioRpcError) as missing:
        await call(one, "Embed", pb2.EmbedRequest(), pb2.EmbedResponse)
    assert missing.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_the_tokenizer_comes_as_an_archive_and_its_folder_by_an_absolute_path(
    one: Harness, tmp_path: Path
) -> None:
    method = vllm_service().methods_by_name["GetTokenizer"]
    request, answer = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    async with connect(one.bound.grpc) as channel:
        ask: Any = channel.unary_stream(f"/{SERVICE}/GetTokenizer", request.SerializeToString, answer.FromString)
        found: list[Any] = [chunk async for chunk in ask(request(), timeout=WAIT_S)]
    data = b"".join(chunk.data for chunk in found)
    assert [bool(chunk.sha256) for chunk in found] == [False] * (len(found) - 1) + [True]
    assert found[-1].sha256 == hashlib.sha256(data).hexdigest()
    with zipfile.ZipFile(io.BytesIO(data)) as files:
        assert {*files.namelist()} == {"tokenizer.json", "tokenizer_config.json"}
        assert files.read("tokenizer.json") == (tmp_path / "tokenizer.json").read_bytes()
    info = await call(one, "GetModelInfo", pb2.GetModelInfoRequest(), pb2.GetModelInfoResponse)
    assert info.tokenizer_path == str(tmp_path.absolute())
