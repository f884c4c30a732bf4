"""Streams through a gateway over fake targets: tokens, text, ends, cancellation, deadlines, bad input."""

import asyncio
import gc
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import duration_pb2

from services.common.pb.paceline.v1 import inference_pb2, types_pb2
from services.common.request.errors import Code, Reason
from services.gateway.prompts.tokenizer import load_tokenizer
from services.gateway.targets import session
from tests.integration.gateway_stack import WAIT_S, ask_for, harness, rich
from tests.support.fakes_target import FakeTarget
from tests.support.metrics import value_of


async def until(condition: Any) -> None:
    """Waits for something that comes soon."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_stream_has_each_token_once_and_the_text_of_its_tokens(tmp_path: Path) -> None:
    async with harness(tmp_path) as one:
        answers = await asyncio.gather(*(one.ask(ask_for(max_tokens=64, seed=seed)) for seed in range(6)))
        again = await one.ask(ask_for(max_tokens=64, seed=3))
        delivered = value_of(one.app.metrics.gateway_delivered_tokens)
        assert delivered == one.targets[0].committed == 7 * 64
    tokenizer = load_tokenizer(tmp_path)
    for seed, answer in enumerate(answers):
        assert len(answer.tokens) == 64
        assert answer.text == tokenizer.decode(answer.tokens)
        assert answer.final is not None
        assert answer.final.finish_reason == types_pb2.FINISH_REASON_LENGTH
        assert answer.final.usage.completion_tokens == 64
        assert answer.final.seed == seed
        histogram = answer.final.speculation.accepted_histogram
        assert 1 + sum((accepted + 1) * count for accepted, count in enumerate(histogram)) == 64
        assert answer.final.speculation.rounds == sum(histogram)
    assert again.tokens == answers[3].tokens
    assert len({tuple(answer.tokens) for answer in answers}) == 6


async def test_a_target_is_told_with_the_end_of_a_stream_that_all_of_it_was_delivered(tmp_path: Path) -> None:
    """So it counts the tokens as emitted then, and not after a wait for a gateway that might have kept fewer."""
    async with harness(tmp_path) as one:
        for count in (1, 40):
            answer = await one.ask(ask_for(max_tokens=count))
            assert len(answer.tokens) == count
            await until(lambda: one.targets[0].settled)
            told = one.targets[0].settled.pop()
            assert (told.tokens_kept, one.targets[0].settled, one.targets[0].cancels) == (count, [], [])


async def test_last_words_on_many_streams_share_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame for each would cost a short request as much again as its start."""
    monkeypatch.setattr(session, "DELIVERED_S", 1.0)
    async with harness(tmp_path) as one:
        await asyncio.gather(*(one.ask(ask_for(max_tokens=1)) for _ in range(8)))
        await until(lambda: len(one.targets[0].settled) == 8)
        assert sum(bool(told.others) for told in one.targets[0].settled) <= 2
        assert len({told.request_id for told in one.targets[0].settled}) == 8


async def test_the_tokens_of_one_round_are_one_message(tmp_path: Path) -> None:
    async with harness(tmp_path, [FakeTarget(pace_s=0.02)]) as one:
        answer = await one.ask(ask_for(max_tokens=40))
        assert answer.final is not None
        assert answer.messages <= answer.final.speculation.rounds + 2


async def test_a_seed_is_drawn_and_told_when_none_is_given(tmp_path: Path) -> None:
    async with harness(tmp_path) as one:
        request = ask_for()
        request.sampling.ClearField("seed")
        answer = await one.ask(request)
        assert answer.final is not None
        assert answer.final.seed
        assert (await one.ask(ask_for(seed=answer.final.seed))).tokens == answer.tokens


async def test_a_stop_string_cuts_text_and_tokens_and_reaches_the_target(tmp_path: Path) -> None:
    async with harness(tmp_path) as one:
        free = await one.ask(ask_for(max_tokens=200))
        tokenizer = load_tokenizer(tmp_path)
        stop = free.text[40:43]
        kept = next(count for count in range(201) if stop in tokenizer.decode(free.tokens[:count]))
        answer = await one.ask(ask_for(stopping=types_pb2.Stopping(max_tokens=200, stop=[stop, "never there"])))
        assert answer.final is not None
        assert answer.final.finish_reason == types_pb2.FINISH_REASON_STOP_STRING
        assert answer.text == free.text[: free.text.index(stop)]
        assert answer.tokens == free.tokens[:kept]
        assert answer.final.usage.completion_tokens == kept
        await until(lambda: one.targets[0].cancels)
        cancel = one.targets[0].cancels[0]
        assert (cancel.tokens_kept, cancel.reason) == (kept, "stop_string")
        assert not one.targets[0].active


async def test_a_stop_token_ends_the_request_and_is_no_text(tmp_path: Path) -> None:
    async with harness(tmp_path) as one:
        free = await one.ask(ask_for(max_tokens=100))
        token = free.tokens[30]
        first = free.tokens.index(token)
        answer = await one.ask(ask_for(stopping=types_pb2.Stopping(max_tokens=100, stop_token_ids=[token])))
        assert answer.final is not None
        assert answer.final.finish_reason == types_pb2.FINISH_REASON_STOP_TOKEN
        assert answer.tokens == free.tokens[: first + 1]
        assert answer.text == load_tokenizer(tmp_path).decode(answer.tokens[:-1])


async def test_logprobs_come_one_entry_a_token(tmp_path: Path) -> None:
    async with harness(tmp_path) as one:
        entries = 0
        async for response in one.stub.Generate(ask_for(max_tokens=20, logprobs=3), timeout=WAIT_S):
            assert len(response.delta.logprobs) == len(response.delta.token_ids)
            entries += sum(len(position.top) == 3 for position in response.delta.logprobs)
        assert entries == 20


async def test_cancellation_reaches_the_target_within_two_rounds(tmp_path: Path) -> None:
    async with harness(tmp_path, [FakeTarget(pace_s=0.5)]) as one:
        call = one.stub.Generate(ask_for(max_tokens=4000), timeout=WAIT_S)
        received = 0
        async for response in call:
            received += len(response.delta.token_ids)
            if received > 3:
                break
        before = one.targets[0].rounds
        call.cancel()
        await until(lambda: one.targets[0].cancels)
        assert one.targets[0].cancel_rounds[0] <= before + 2
        assert not one.targets[0].active
        assert one.targets[0].cancels[0].reason == "cancel"
        assert one.targets[0].cancels[0].tokens_kept <= received
        await until(lambda: value_of(one.app.metrics.gateway_inflight_requests) == 0)


async def test_a_timeout_ends_the_stream_with_what_there_is(tmp_path: Path) -> None:
    async with harness(tmp_path, [FakeTarget(pace_s=0.05)]) as one:
        request = ask_for(max_tokens=4000)
        request.timeout.CopyFrom(duration_pb2.Duration(seconds=2))
        answer = await one.ask(request)
        assert answer.final is not None
        assert answer.final.finish_reason == types_pb2.FINISH_REASON_DEADLINE
        assert 0 < len(answer.tokens) < 4000
        assert answer.final.usage.completion_tokens == len(answer.tokens)
        assert 0 < one.targets[0].starts[0].timeout.ToMilliseconds() <= 2000
        await until(lambda: one.targets[0].cancels)
        assert one.targets[0].cancels[0].reason == "deadline"


async def test_a_deadline_before_the_first_token_is_a_status(tmp_path: Path) -> None:
    async with harness(tmp_path, [FakeTarget(pace_s=60.0)]) as one:
        request = ask_for()
        request.timeout.CopyFrom(duration_pb2.Duration(nanos=300_000_000))
        with pytest.raises(grpc.aio.AioRpcError) as late:
            await one.ask(request)
        assert rich(late.value).reason is Reason.DEADLINE
        with pytest.raises(grpc.aio.AioRpcError) as capped:
            await one.ask(ask_for(), timeout=0.3)
        assert capped.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_the_server_caps_requests_without_a_deadline(tmp_path: Path) -> None:
    async with harness(tmp_path, [FakeTarget(pace_s=0.05)], max_request_s=2.0) as one:
        answer = await one.ask(ask_for(max_tokens=4000), timeout=None)
        assert answer.final is not None
        assert answer.final.finish_reason == types_pb2.FINISH_REASON_DEADLINE


def bad_requests() -> list[tuple[inference_pb2.GenerateRequest, str, Reason]]:
    nan = float("nan")
    tokens = types_pb2.TokenIds
    return [
        (ask_for(""), "prompt", Reason.INVALID_FIELD),
        (inference_pb2.GenerateRequest(), "prompt", Reason.INVALID_FIELD),
        (ask_for("word " * 20_000), "prompt", Reason.CONTEXT_LIMIT),
        (ask_for("x" * 1_100_000), "prompt", Reason.CONTEXT_LIMIT),
        (inference_pb2.GenerateRequest(prompt={"tokens": tokens(ids=[1, 512])}), "prompt", Reason.INVALID_FIELD),  # type: ignore[arg-type]
        (inference_pb2.GenerateRequest(prompt={"tokens": tokens()}), "prompt", Reason.INVALID_FIELD),  # type: ignore[arg-type]
        (inference_pb2.GenerateRequest(prompt={"chat": {}}), "prompt.chat.messages", Reason.INVALID_FIELD),  # type: ignore[arg-type]
        (ask_for(stopping=types_pb2.Stopping(stop=["x"] * 10_000)), "stopping.stop", Reason.INVALID_FIELD),
        (ask_for(prompt_logprobs=21), "prompt_logprobs", Reason.INVALID_FIELD),
        (ask_for(logprobs=21), "logprobs", Reason.INVALID_FIELD),
        (ask_for(priority=101), "priority", Reason.INVALID_FIELD),
        (ask_for(idempotency_key="k" * 129), "idempotency_key", Reason.INVALID_FIELD),
        (ask_for(timeout=duration_pb2.Duration(seconds=-1)), "timeout", Reason.INVALID_FIELD),
        (ask_for(constraint="root ::= x"), "constraint", Reason.UNSUPPORTED),
        (ask_for(forced_tokens=tokens(ids=[1])), "forced_tokens", Reason.UNSUPPORTED),
        (_sampling(temperature=nan), "sampling.temperature", Reason.INVALID_FIELD),
        (_sampling(top_p=float("inf")), "sampling.top_p", Reason.INVALID_FIELD),
        (_sampling(logit_bias={512: 1.0}), "sampling.logit_bias", Reason.INVALID_FIELD),
    ]


def _sampling(**fields: Any) -> inference_pb2.GenerateRequest:
    request = ask_for()
    request.sampling.MergeFrom(types_pb2.Sampling(**fields))
    return request


async def test_bad_input_is_refused_by_field_and_harms_no_neighbour(tmp_path: Path) -> None:
    async with harness(tmp_path, [FakeTarget(pace_s=0.005)]) as one:
        alone = await one.ask(ask_for(max_tokens=300, seed=11))
        neighbour = asyncio.create_task(one.ask(ask_for(max_tokens=300, seed=11)))
        for request, field, reason in bad_requests():
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await one.ask(request)
            error = rich(refused.value)
            assert (error.code, error.field, error.reason) == (Code.INVALID_ARGUMENT, field, reason)
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await one.ask(ask_for(model="another"))
        assert rich(unknown.value).reason is Reason.UNKNOWN_MODEL
        assert (await neighbour).tokens == alone.tokens
        assert value_of(one.app.metrics.gateway_inflight_requests) == 0


async def test_a_frame_that_is_no_utf8_is_an_invalid_argument(tmp_path: Path) -> None:
    async with harness(tmp_path) as one, grpc.aio.insecure_channel(one.bound.grpc) as channel:
        method: Any = channel.unary_stream("/paceline.v1.InferenceService/Generate")
        call = method(b"\x0a\x04\xff\xfe\xfd\xfc", timeout=WAIT_S)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call.read()
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert rich(refused.value).reason is Reason.MALFORMED


async def test_model_and_tokens_are_told_as_generate_uses_them(tmp_path: Path) -> None:
    async with harness(tmp_path) as one:
        model = (await one.stub.GetModel(inference_pb2.GetModelRequest(), timeout=WAIT_S)).model
        assert (model.context_limit, model.vocab_size, model.limits["max_stop_strings"]) == (4096, 512, 16)
        prompt = inference_pb2.Prompt(text="def add(first, second)")
        tokens = (await one.stub.Tokenize(inference_pb2.TokenizeRequest(prompt=prompt), timeout=WAIT_S)).tokens
        by_text = await one.ask(ask_for("def add(first, second)"))
        by_ids = await one.ask(
            inference_pb2.GenerateRequest(
                prompt=inference_pb2.Prompt(tokens=tokens),
                sampling=types_pb2.Sampling(seed=5),
                stopping=types_pb2.Stopping(max_tokens=32),
            )
        )
        assert by_text.tokens == by_ids.tokens
        assert [*one.targets[0].starts[0].token_ids] == [*tokens.ids]


async def test_each_delta_tells_of_its_drafts_and_the_sums_are_the_final_ones(tmp_path: Path) -> None:
    async with harness(tmp_path) as one:
        deltas, final = [], None
        async for response in one.stub.Generate(ask_for(max_tokens=64), timeout=WAIT_S):
            deltas.append(response.delta)
            final = response.final
        assert final is not None and final.speculation.accepted > 0
        assert sum(delta.drafted for delta in deltas) == final.speculation.drafted
        assert sum(delta.accepted for delta in deltas) == final.speculation.accepted
        assert all(delta.accepted <= delta.drafted for delta in deltas)


async def test_the_id_of_a_request_comes_back_before_its_first_message(tmp_path: Path) -> None:
    async with harness(tmp_path) as one:
        for metadata in ((("x-request-id", "mine-7"),), ()):
            call = one.stub.Generate(ask_for(), timeout=WAIT_S, metadata=metadata)
            told: Any = await call.initial_metadata()
            names = {response.request_id async for response in call}
            assert names == {told["x-request-id"]}
            assert not metadata or names == {"mine-7"}
        for wrong in ("x" * 129, "two words", " "):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await one.ask(ask_for(), metadata=(("x-request-id", wrong),))
            assert (rich(refused.value).code, rich(refused.value).field) == (Code.INVALID_ARGUMENT, "x-request-id")


async def test_an_ended_call_is_freed_without_a_collection(tmp_path: Path) -> None:
    """gRPC counts it among its connection's 256 until then, and refuses more."""

    def living() -> int:
        return sum(type(one).__name__ == "_ServicerContext" for one in gc.get_objects())

    async with harness(tmp_path) as one:
        await one.ask(ask_for(max_tokens=4))
        gc.collect()
        gc.disable()
        try:
            before = living()
            await asyncio.gather(*(one.ask(ask_for(max_tokens=4)) for _ in range(20)))
            await until(lambda: living() <= before)
        finally:
            gc.enable()
