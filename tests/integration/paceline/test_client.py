"""Both clients against a gateway over fake targets."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from paceline import AsyncClient, Client, Message, NoGatewayError, Options, RefusedError, Tls
from services.gateway.tenancy.tenants import digest
from tests.integration.gateway_stack import WAIT_S, harness
from tests.integration.test_gateway_stream import until
from tests.support.fakes_target import FakeTarget
from tests.support.ports import free_port
from tests.unit.common.serving.certificates import Authority

TENANTS = f'[[tenant]]\nname = "one"\nkey_sha256 = ["{digest("key-one")}"]\n'
T = TypeVar("T")
GREEDY = Options(max_tokens=32, seed=5)


async def sync(address: str, use: Callable[[Client], T], **how: Any) -> T:
    """What a synchronous client gives, in a thread of its own."""

    def run() -> T:
        with Client(address, **how) as client:
            return use(client)

    return await asyncio.wait_for(asyncio.to_thread(run), WAIT_S)


@pytest.fixture
def unused_address() -> Iterator[str]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


async def test_both_clients_read_the_same_answer(tmp_path: Path) -> None:
    async with harness(tmp_path) as one:
        answer = await sync(one.bound.grpc, lambda client: client.generate("hello", GREEDY))
        async with AsyncClient(one.bound.grpc) as client:
            stream = client.stream("hello", GREEDY)
            pieces = [piece async for piece in stream]
            again = await client.generate("hello", GREEDY)
    assert (len(answer.tokens), answer.finish, answer.seed) == (32, "length", 5)
    assert answer.tokens == again.tokens == stream.answer.tokens == [token for one in pieces for token in one.tokens]
    assert answer.text == again.text == "".join(piece.text for piece in pieces)
    assert [piece.position for piece in pieces][:1] == [0]
    assert answer.tau > 1 and answer.first_s > 0 and answer.decode_tok_s > 0


async def test_model_tokens_and_status_are_told(tmp_path: Path) -> None:
    async with harness(tmp_path) as one:
        use: Callable[[Client], Any] = lambda client: (client.model(), client.tokenize("hello"), client.status())  # noqa: E731
        model, ids, status = await sync(one.bound.grpc, use)
        async with AsyncClient(one.bound.grpc) as client:
            assert (await client.model()).name == model.name == "fake"
            assert await client.tokenize("hello") == ids
            assert (await client.status()).ready_pairs == status.ready_pairs == 1
    assert ids


async def test_a_refusal_tells_reason_field_and_time(tmp_path: Path) -> None:
    async with harness(tmp_path) as one:
        with pytest.raises(RefusedError) as refused:
            await sync(one.bound.grpc, lambda client: client.generate("x", Options(temperature=9.0)))
        error = refused.value
        assert (error.code, error.reason, error.field) == ("INVALID_ARGUMENT", "INVALID_FIELD", "sampling.temperature")
        assert error.retry_after_s is None


async def test_a_full_gateway_tells_when_to_come_again(tmp_path: Path) -> None:
    async with harness(tmp_path, [FakeTarget(pace_s=0.02)], max_requests=1) as one:
        async with AsyncClient(one.bound.grpc) as client:
            stream = client.stream("x", Options(max_tokens=2000))
            await anext(stream)
            with pytest.raises(RefusedError) as full:
                await client.generate("x")
            stream.cancel()
        assert (full.value.code, full.value.reason) == ("RESOURCE_EXHAUSTED", "OVERLOADED")
        assert full.value.retry_after_s


async def test_a_cancelled_stream_ends_and_frees_the_target(tmp_path: Path) -> None:
    long = Options(max_tokens=2000)
    async with harness(tmp_path, [FakeTarget(pace_s=0.02)]) as one:

        def cancel(client: Client) -> str:
            stream = client.stream("hello", long)
            next(stream)
            stream.cancel()
            assert len(list(stream)) < 1000
            return stream.answer.finish

        assert await sync(one.bound.grpc, cancel) == "cancelled"
        await until(lambda: not one.targets[0].active)
        async with AsyncClient(one.bound.grpc) as client:
            stream = client.stream("hello", long)
            await anext(stream)
            stream.cancel()
            assert len([piece async for piece in stream]) < 1000
            assert stream.answer.finish == "cancelled"
            await until(lambda: not one.targets[0].active)


async def test_a_task_that_is_cancelled_takes_its_call_along(tmp_path: Path) -> None:
    async with harness(tmp_path, [FakeTarget(pace_s=0.02)]) as one, AsyncClient(one.bound.grpc) as client:
        task = asyncio.create_task(client.generate("hello", Options(max_tokens=2000)))
        await until(lambda: one.targets[0].active)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: not one.targets[0].active)


async def test_a_tenant_s_key_opens_and_a_wrong_one_does_not(tmp_path: Path) -> None:
    path = tmp_path / "tenants.toml"
    path.write_text(TENANTS)
    async with harness(tmp_path, tenants=str(path)) as one:
        assert (await sync(one.bound.grpc, lambda client: client.generate("x", GREEDY), key="key-one")).tokens
        with pytest.raises(RefusedError, match="UNAUTHENTICATED"):
            await sync(one.bound.grpc, lambda client: client.model(), key="key-two")


async def test_tls_with_a_certificate_of_ones_own(tmp_path: Path) -> None:
    authority = Authority.make()
    ca = authority.write(tmp_path / "ca.pem")
    cert, key = authority.issue(tmp_path / "server", "gateway", host="llm.example")
    own_cert, own_key = authority.issue(tmp_path / "client", "client")
    tls = Tls(ca, own_cert, own_key, name="llm.example")
    async with harness(tmp_path, tls_cert=cert, tls_key=key, tls_ca=ca) as one:
        assert (await sync(one.bound.grpc, lambda client: client.model(), tls=tls)).name == "fake"
        async with AsyncClient(one.bound.grpc, tls=tls) as found:
            assert (await found.model()).name == "fake"


async def test_no_gateway_is_told_at_once(unused_address: str) -> None:
    async def begun(use: Awaitable[object]) -> None:
        with pytest.raises(NoGatewayError, match=unused_address):
            await use

    client = AsyncClient(unused_address)
    await asyncio.gather(begun(sync(unused_address, lambda one: one.model())), begun(client.__aenter__()))


def _uses(client: Client) -> dict[str, Callable[[], object]]:
    """Every way to use a client."""
    return {
        "generate": lambda: client.generate("x"),
        "stream": lambda: client.stream("x"),
        "next": lambda: next(client.stream("x")),
        "model": client.model,
        "tokenize": lambda: client.tokenize("x"),
        "status": client.status,
    }


async def test_every_use_outside_with_tells_that_none_answers(unused_address: str) -> None:
    """All at once, each by a client of its own: each waits as long as a connection may take."""

    async def use(way: str) -> None:
        client = Client(unused_address)
        with pytest.raises(NoGatewayError, match=unused_address):
            await asyncio.wait_for(asyncio.to_thread(_uses(client)[way]), WAIT_S)
        client.close()
        with pytest.raises(ValueError, match="the client is closed"):
            _uses(client)[way]()

    await asyncio.gather(*map(use, _uses(Client(unused_address))))


async def test_every_use_for_asyncio_tells_that_none_answers(unused_address: str) -> None:
    uses: list[Callable[[AsyncClient], Any]] = [
        lambda client: client.generate("x"),
        lambda client: anext(client.stream("x")),
        AsyncClient.model,
        lambda client: client.tokenize("x"),
        AsyncClient.status,
    ]

    async def use(way: Callable[[AsyncClient], Any]) -> None:
        client = AsyncClient(unused_address)
        with pytest.raises(NoGatewayError, match=unused_address):
            await asyncio.wait_for(way(client), WAIT_S)
        await client.close()

    await asyncio.gather(*map(use, uses))


async def test_a_gateway_that_went_away_is_told_by_the_next_call(tmp_path: Path) -> None:
    async with harness(tmp_path, grpc=f"127.0.0.1:{free_port()}") as one:
        address = one.bound.grpc
        client, other = Client(address), AsyncClient(address)
        assert (await asyncio.to_thread(client.generate, "x", GREEDY)).tokens
        assert (await other.generate("x", GREEDY)).tokens
    for use in (asyncio.to_thread(client.generate, "x", GREEDY), other.generate("x", GREEDY)):
        with pytest.raises(NoGatewayError, match=address):
            await asyncio.wait_for(use, WAIT_S)
    client.close()
    await other.close()


async def test_keywords_are_options_and_dicts_are_messages(tmp_path: Path) -> None:
    async with harness(tmp_path) as one:
        asked: list[Any] = ["hello", [{"role": "user", "content": "hello"}]]
        values: list[Any] = ["hello", [Message("user", "hello")]]
        async with AsyncClient(one.bound.grpc) as client:
            for plain, value in zip(asked, values, strict=True):
                use = partial(Client.generate, prompt=plain, max_tokens=9, seed=5, logprobs=2)
                answer = await sync(one.bound.grpc, use)
                same = await client.generate(value, Options(max_tokens=99, seed=5), max_tokens=9)
                assert answer.tokens == same.tokens
                assert [position.chosen.token_id for position in answer.logprobs] == answer.tokens
                assert {len(position.top) for position in answer.logprobs} == {2}
                assert not same.logprobs


async def test_a_chat_is_rendered_by_the_template_of_the_model(tmp_path: Path) -> None:
    async with harness(tmp_path) as one:
        messages = [Message("user", "hi"), Message("assistant", "yes?"), Message("user", "more")]
        ids = await sync(one.bound.grpc, lambda client: client.tokenize(messages))
        assert len(ids) > len(await sync(one.bound.grpc, lambda client: client.tokenize(messages[:1])))
