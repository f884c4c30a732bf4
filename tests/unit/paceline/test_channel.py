"""Addresses as gRPC takes them."""

from typing import Any

import pytest

from paceline import AsyncClient, Client, InvalidValueError
from paceline.channel import checked

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


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("field", "value"),
    [("address", 8000), ("address", None), ("address", ("127.0.0.1", 1)), ("key", "a\nb"), ("key", 5), ("key", "ключ"),
     ("key", "a b"), ("tls", "ca.pem"), ("tls", True)],
)  # fmt: skip
def test_what_no_call_could_be_made_with_is_told_by_name(kind: Any, field: str, value: Any) -> None:
    """Before a gateway is looked for."""
    with pytest.raises(InvalidValueError, match=f"^{field}: ") as refused:
        kind(**{"address": "127.0.0.1:1", field: value})
    assert field != "key" or str(value) not in str(refused.value)
