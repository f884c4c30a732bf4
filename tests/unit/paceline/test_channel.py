"""Addresses as gRPC takes them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from paceline import AsyncClient, Client, InvalidValueError, RefusedError
from paceline.channel import channel_options, checked
from services.common.serving.channel import connect_sync
from tests.support.cases import each

GOOD = (
    "127.0.0.1:50051",
    "[::1]:50051",
    "localhost:1",
    "a-b.example:65535",
    "dns:///x:3",
    "unix:/run/x",
    "ipv4:1.2.3.4:5",
)
URLS = ("http://127.0.0.1:8000", "https://x/v1", "grpc://127.0.0.1:50051", "HTTP://x:1")
BAD = ("", "localhost", "localhost:", ":3", "::1:50051", "x:0", "x:65536", "x:http", "a b:3", "x:3/v1", "x:3 ")


@pytest.mark.parametrize("address", GOOD)
def test_an_address_stays_as_it_is(address: str) -> None:
    assert checked(address) == address


@pytest.mark.parametrize("address", URLS)
def test_a_url_is_told_what_to_give_instead(address: str) -> None:
    for make in (Client, AsyncClient, checked):
        with pytest.raises(InvalidValueError, match=r"^address: .* is a URL; give HOST:PORT "):
            make(address)


@pytest.mark.parametrize("address", BAD)
def test_what_is_no_address_is_told_how_one_looks(address: str) -> None:
    with pytest.raises(InvalidValueError, match=r"^address: .* is not HOST:PORT, such as"):
        checked(address)


@each("kind", [Client, AsyncClient])
@each(
    ("field", "value"),
    [
        ("address", 8000),
        ("address", None),
        ("address", ("127.0.0.1", 1)),
        ("key", "a\nb"),
        ("key", 5),
        ("key", "ключ"),
        ("key", "a b"),
        ("tls", "ca.pem"),
        ("tls", True),
    ],
)
def test_what_no_call_could_be_made_with_is_told_by_name(kind: Any, field: str, value: Any) -> None:
    """Before a gateway is looked for."""
    with pytest.raises(InvalidValueError, match=f"^{field}: ") as refused:
        kind(**{"address": "127.0.0.1:1", field: value})
    assert field != "key" or str(value) not in str(refused.value)


@pytest.fixture
def behind_a_proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The port of a server without methods, on a machine whose environment names a proxy that is not there."""
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield str(port)
    server.stop(None).wait(10.0)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "ipv4:127.0.0.1"])
def test_a_proxy_does_not_stand_between_this_machine_and_itself(host: str, behind_a_proxy: str) -> None:
    with Client(f"{host}:{behind_a_proxy}") as client, pytest.raises(RefusedError, match="UNIMPLEMENTED"):
        client.model()


def test_a_proxy_does_not_stand_between_services(behind_a_proxy: str) -> None:
    with connect_sync(f"127.0.0.1:{behind_a_proxy}") as channel:
        grpc.channel_ready_future(channel).result(30.0)


def test_a_gateway_elsewhere_is_reached_as_the_environment_says() -> None:
    proxied = ("grpc.enable_http_proxy", 0)
    assert all(
        proxied not in channel_options(address) for address in ("gateway.example:50051", "10.0.0.7:1", "dns:///x:3")
    )
    assert all(proxied in channel_options(address) for address in ("unix:/run/x", "[::1]:1", "ipv6:[::1]:1"))
