"""HTTP refuses at the headers, bounds what it reads, and follows keys and certificates as gRPC does."""

import asyncio
import errno
import json
import os
import ssl
from pathlib import Path
from typing import Any

import grpc
import h11
import pytest

from services.common.serving.channel import MAX_CLIENT_MESSAGE_BYTES
from services.common.serving.tls import TlsFiles, channel_credentials
from services.gateway.http.server import connection, limits
from services.gateway.http.server.cors import ALLOWED_HEADERS
from services.gateway.intake import inlet
from services.gateway.tenancy.tenants import digest
from tests.integration.gateway_stack import Answer, ask_for
from tests.integration.http_stack import CHAT, COMPLETIONS, MODELS, chat, completion, serving
from tests.integration.test_gateway_security import TENANTS, bearer, tenants  # noqa: F401 - a fixture
from tests.integration.test_gateway_stream import until
from tests.support.fakes_target import FakeTarget
from tests.support.http_client import Client, connected
from tests.support.metrics import value_of
from tests.support.pace import within_s
from tests.support.told import told
from tests.unit.common.serving.certificates import Authority

JSON = {"content-type": "application/json"}


def key(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}"}


@pytest.mark.parametrize("headers", [{}, key("key-three"), key(""), {"authorization": "key-one"}])
async def test_without_a_known_key_nothing_is_told_and_no_body_is_read(
    tmp_path: Path,
    tenants: str,  # noqa: F811
    headers: dict[str, str],
) -> None:
    async with serving(tmp_path, tenants=tenants) as (one, http):
        for path in (CHAT, COMPLETIONS, MODELS, "/openapi.json", "/x"):
            async with connected(http.address) as raw:
                said = {"content-type": "application/json", "content-length": "1000000", "x-request-id": "i", **headers}
                raw.writer.write(_head("POST", path, said))
                reply = await raw.reply_to_raw()
                assert (reply.status, reply.error["code"]) == (401, "invalid_api_key")
                assert (reply.headers["www-authenticate"], reply.headers["x-request-id"]) == ("Bearer", "i")
        assert not one.targets[0].starts
        assert (await http.post(COMPLETIONS, completion(), key("key-one-old"))).status == 200
        assert (await http.post(COMPLETIONS, completion(), {"authorization": "bearer key-two"})).status == 200


async def test_tenants_limits_hold_over_both_listeners_together(tmp_path: Path, tenants: str) -> None:  # noqa: F811
    async with serving(tmp_path, tenants=tenants) as (one, http):
        first = Answer()
        one.targets[0].hold(1)
        running = asyncio.create_task(one.ask(ask_for(max_tokens=500), into=first, **bearer("key-one")))
        await until(lambda: first.tokens)
        refused = await http.post(COMPLETIONS, completion(), key("key-one"))
        assert (refused.status, refused.error["type"]) == (429, "rate_limit_error")
        assert int(refused.headers["retry-after"]) >= 1
        one.targets[0].go_on()
        assert (await http.post(COMPLETIONS, completion(), key("key-two"))).status == 200
        await running
        several = await http.post(COMPLETIONS, completion(n=2), key("key-one"))
        assert several.status == 429, "each choice counts as a request"
        assert "retry-after" not in several.headers, "so many may never run"
        assert (await http.post(COMPLETIONS, completion(), key("key-one"))).status == 200
        high = await http.post(COMPLETIONS, completion(paceline={"priority": 1}), key("key-one"))
        assert (high.status, high.error["param"]) == (400, "paceline.priority")
        assert {start.tenant for start in one.targets[0].starts} == {"one", "two"}


async def test_a_revoked_key_ends_within_five_seconds(tmp_path: Path, tenants: str) -> None:  # noqa: F811
    async with serving(tmp_path, tenants=tenants) as (_, http):
        assert (await http.get(MODELS, **key("key-one"))).status == 200
        Path(tenants).write_text(TENANTS.replace(digest("key-one"), digest("key-new")))
        async with asyncio.timeout(within_s(5.0)):
            while (await http.get(MODELS, **key("key-one"))).status != 401:
                await asyncio.sleep(0.05)
        assert (await http.get(MODELS, **key("key-new"))).status == 200


async def test_bodies_are_bounded_in_size_whether_it_is_told_or_not(tmp_path: Path) -> None:
    async with serving(tmp_path) as (one, http):
        large = b" " * (MAX_CLIENT_MESSAGE_BYTES + 1)
        async with connected(http.address) as raw:
            raw.writer.write(
                _head("POST", CHAT, {"content-type": "application/json", "content-length": str(len(large))})
            )
            assert (await raw.reply_to_raw()).status == 413
        async with connected(http.address) as raw:
            raw.writer.write(_head("POST", CHAT, {"content-type": "application/json", "transfer-encoding": "chunked"}))
            raw.writer.write(b"%x\r\n" % len(large) + large)
            assert (await raw.reply_to_raw()).status == 413
        assert (await http.post(CHAT, large[3:] + b"{}")).status == 400
        long = await http.post(COMPLETIONS, completion("x" * (MAX_CLIENT_MESSAGE_BYTES - 100)))
        assert (long.status, long.error["param"]) == (400, "prompt")
        assert (await one.ask(ask_for())).final is not None


async def test_headers_are_bounded_in_size_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEADERS_S", 0.3)
    unpatched_s = limits.HEADERS_S - 1.0
    async with serving(tmp_path) as (_, http):
        async with connected(http.address) as raw:
            raw.writer.write(b"GET / HTTP/1.1\r\nx: " + b"x" * limits.HEADER_BYTES * 2)
            assert (await raw.reader.read()).startswith(b"HTTP/1.1 4")
        for path, name in (("/openapi.json", "x"), (f"/{'x' * limits.HEADER_BYTES}", "")):
            reply = await http.get(path, x=name * limits.HEADER_BYTES)
            assert (reply.status, reply.error["code"]) == (431, "invalid_field"), "they came in one piece"
        for begun in (b"", b"GET / HTTP/1.1\r\nhost: localhost\r\n"):
            async with connected(http.address) as raw, asyncio.timeout(unpatched_s):
                raw.writer.write(begun)
                assert not await _until_closed(raw.reader)
        async with connected(http.address) as raw, asyncio.timeout(unpatched_s):
            raw.writer.write(_head("GET", "/openapi.json", {}))
            assert (await raw.reply_to_raw()).status == 200
            raw.writer.write(b"GET / HT")
            assert not await _until_closed(raw.reader)


async def test_a_body_that_dribbles_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inlet, "PATIENCE_S", 0.3)
    async with serving(tmp_path) as (_, http), connected(http.address) as raw:
        raw.writer.write(_head("POST", CHAT, {"content-type": "application/json", "content-length": "100"}) + b"{")
        reply = await raw.reply_to_raw()
        assert (reply.status, reply.error["code"]) == (408, "deadline")


async def test_a_refused_body_is_dropped_for_a_moment_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once would take the answer back; for ever would keep the connection for whoever dribbles."""
    monkeypatch.setattr(connection, "BODY_LINGER_S", 0.5)
    async with serving(tmp_path) as (_, http):
        async with connected(http.address) as raw, asyncio.timeout(10.0):
            raw.writer.write(_head("POST", "/x", {"content-length": "100000000"}) + b"x" * 100_000)
            assert (await raw.reply_to_raw()).status == 404
            raw.writer.write(b"x" * 100_000)
            await raw.writer.drain()
            assert not await _until_closed(raw.reader)
        async with connected(http.address) as raw, asyncio.timeout(10.0):
            raw.writer.write(_head("POST", "/x", {"content-length": "10"}))
            assert (await raw.reply_to_raw()).status == 404
            raw.writer.write(b"x" * 10)
            await asyncio.sleep(0.8)
            raw.writer.write(_head("GET", "/openapi.json", {}))
            raw.again()
            assert (await raw.reply_to_raw()).status == 200, "a body that came after all hurts nobody"


@pytest.mark.parametrize(
    "junk", [b"\x16\x03\x01\x02\x00\x01", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\r\n\r\n\x00\xff", b"GET\r\n\r\n"]
)
async def test_bytes_that_are_no_http_are_the_clients_fault(tmp_path: Path, junk: bytes) -> None:
    async with serving(tmp_path) as (one, http):
        async with connected(http.address) as raw:
            raw.writer.write(junk)
            raw.writer.write_eof()
            answer = await raw.reader.read()
            assert not answer or answer.startswith(b"HTTP/1.1 4"), answer
        assert (await one.ask(ask_for())).final is not None
        assert (await http.get("/openapi.json")).status == 200


async def test_a_body_that_is_not_said_to_be_json_is_refused(tmp_path: Path) -> None:
    """A page of any origin may send text without asking."""
    async with serving(tmp_path) as (_, http):
        assert (await http.post(CHAT, chat(), {"content-type": "text/plain"})).status == 415
        assert (await http.post(CHAT, chat(), {"content-type": "application/json; charset=utf-8"})).status == 200


async def test_pages_of_other_origins_may_call_where_a_list_names_them(tmp_path: Path) -> None:
    ours, other = "https://chat.example", "https://evil.example"
    asked = {"access-control-request-method": "POST"}
    async with serving(tmp_path) as (_, http):
        for origin in (ours, "null"):
            reply = await http.get("/openapi.json", origin=origin)
            assert reply.status == 200 and not [name for name in reply.headers if "access-control" in name]
            async with connected(http.address) as raw:
                await raw.send("OPTIONS", CHAT, headers={"origin": origin, **asked})
                refused = await raw.reply()
                assert refused.status == 403 and "http_cors_origins" in refused.error["message"]
    async with serving(tmp_path, http_cors_origins=(ours,)) as (_, http):
        reply = await http.get("/openapi.json", origin=ours)
        assert (reply.headers["access-control-allow-origin"], reply.headers["vary"]) == (ours, "origin")
        assert "access-control-allow-origin" not in (await http.get("/openapi.json", origin=other)).headers
        for origin, status in ((ours, 200), (other, 403)):
            async with connected(http.address) as raw:
                await raw.send("OPTIONS", CHAT, headers={"origin": origin, **asked})
                assert (await raw.reply()).status == status


NAMED = "authorization,anthropic-version,x-stainless-os,x-stainless-retry-count"
PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-private-network": "true"}


async def test_a_page_that_may_call_may_send_the_headers_of_its_client(tmp_path: Path) -> None:
    async with serving(tmp_path, http_cors_origins=("*",)) as (_, http):
        for asked, allowed in ((NAMED, NAMED), ("bad name\x0b", ALLOWED_HEADERS), ("", ALLOWED_HEADERS)):
            async with connected(http.address) as raw:
                names = {"access-control-request-headers": asked} if asked.isprintable() else {}
                await raw.send("OPTIONS", CHAT, headers={"origin": "https://a.example", **PREFLIGHT, **names})
                reply = await raw.reply()
            assert (reply.status, reply.headers["access-control-allow-headers"]) == (200, allowed)
            assert reply.headers["access-control-allow-private-network"] == "true"
        exposed = (await http.get("/openapi.json", origin="https://a.example")).headers["access-control-expose-headers"]
        assert {"retry-after", "x-ratelimit-remaining-requests"} <= {*exposed.split(", ")}


async def test_what_is_no_http_is_told_without_repeating_it(tmp_path: Path) -> None:
    chunk = b"POST /v1/models HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
    secret = b"s3cret"
    strange = (
        b"GET /%b\xc3\xa9 HTTP/1.1\r\n\r\n", b"%b\r\n\r\n", b"GET / HTTP/1.1\r\n%b\r\n\r\n", chunk + b"%b\r\n",
        chunk + b"1\r\na%b\r\n", b"GET / HTTP/1.1\r\nhost: a\r\nx: %b\x00\r\n\r\n",
    )  # fmt: skip
    async with serving(tmp_path) as (_, http):
        for one in strange:
            async with connected(http.address) as raw:
                raw.writer.write(one.replace(b"%b", secret))
                reply = await raw.reply_to_raw()
            said = reply.error["message"]
            assert reply.status == 400 and said.startswith("no valid HTTP: "), said
            assert not [word for word in ("s3cret", "bytearray", "b'") if word in said], said


@pytest.mark.parametrize(
    ("path", "allowed"),
    [(CHAT, "POST, OPTIONS"), ("/v1/models", "GET, HEAD, OPTIONS"), ("/health", "GET, HEAD, OPTIONS"), ("/nope", "")],
)
async def test_what_may_be_done_at_a_path_is_told(tmp_path: Path, path: str, allowed: str) -> None:
    async with serving(tmp_path) as (_, http):
        reply = await http.ask("OPTIONS", path)
        assert (reply.status, reply.headers.get("allow", "")) == (200 if allowed else 404, allowed)


async def test_metrics_are_on_their_own_port_only(tmp_path: Path) -> None:
    async with serving(tmp_path) as (one, http):
        assert (await http.get("/metrics")).status == 404
        assert (await Client(one.bound.metrics).get("/metrics")).status == 200


def trusting(ca: str, pair: tuple[str, str] | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca)
    context.check_hostname = False
    if pair:
        context.load_cert_chain(*pair)
    return context


async def test_tls_and_mtls_with_the_files_of_grpc_and_their_rotation(tmp_path: Path) -> None:
    authority = Authority.make()
    ca = authority.write(tmp_path / "ca.pem")
    cert, private = authority.issue(tmp_path / "gateway", "gateway")
    mine = trusting(ca, authority.issue(tmp_path / "client", "client"))
    client: grpc.ChannelCredentials = channel_credentials(TlsFiles(*authority.issue(tmp_path / "other", "client"), ca))
    files: dict[str, Any] = {"tls_cert": cert, "tls_key": private, "tls_ca": ca}
    async with serving(tmp_path, client=client, **files) as (one, http):
        assert (await one.ask(ask_for())).final is not None
        assert (await Client(http.address, mine).post(COMPLETIONS, completion())).status == 200
        for context in (trusting(ca), None):
            with pytest.raises((OSError, h11.RemoteProtocolError)):
                await Client(http.address, context).get("/openapi.json")
        first = await _certificate(http.address, mine)
        authority.issue(tmp_path / "gateway", "gateway again")
        os.utime(cert, ns=(0, 0))
        assert await _certificate(http.address, mine) != first
        Path(cert).write_text("no certificate")
        assert await _certificate(http.address, mine) != first, "what cannot be used changes nothing"


async def _certificate(address: str, context: ssl.SSLContext) -> bytes:
    async with connected(address, context) as raw:
        found: bytes = raw.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return found


async def test_a_client_that_does_not_read_loses_its_stream_as_over_grpc(tmp_path: Path) -> None:
    fake = FakeTarget(pace_s=0.0, context_limit=1 << 20, burst=64)
    async with serving(tmp_path, [fake], outbox_tokens=256) as (one, http):
        async with connected(http.address) as raw:
            asked = completion(stream=True, max_tokens=1 << 19)
            await raw.send("POST", COMPLETIONS, json.dumps(asked).encode(), JSON)
            raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await until(lambda: value_of(one.app.metrics.gateway_slow_clients) == 1)
            await until(lambda: not fake.active)
        assert (await http.post(COMPLETIONS, completion())).status == 200
        assert value_of(one.app.metrics.gateway_inflight_requests) == 0


async def test_an_answer_that_is_never_taken_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole one, or the last events of a stream: nothing else would end the connection."""
    monkeypatch.setattr(connection, "UNREAD_S", 0.3)
    dropped = asyncio.Event()
    drop = connection.Connection.abort

    def abort(one: connection.Connection) -> None:
        dropped.set()
        drop(one)

    monkeypatch.setattr(connection.Connection, "abort", abort)
    fake = FakeTarget(pace_s=0.0, context_limit=1 << 16, burst=64)
    async with serving(tmp_path, [fake]) as (_, http), connected(http.address) as raw:
        asked = completion(max_tokens=3000, n=4, logprobs=20)
        await raw.send("POST", COMPLETIONS, json.dumps(asked).encode(), JSON)
        raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: not fake.active and fake.committed == 12_000)
        await until(dropped.is_set)
        raw.writer.transport.resume_reading()  # type: ignore[attr-defined]
        with pytest.raises((ConnectionError, h11.RemoteProtocolError)):
            await raw.reply()


def _head(method: str, path: str, headers: dict[str, str]) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: localhost", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def _until_closed(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


async def test_a_client_that_resets_while_it_is_refused_is_no_defect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def gone(_: object) -> None:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    defects: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, defect: defects.append(defect))
    async with serving(tmp_path) as (_, http), connected(http.address) as raw:
        monkeypatch.setattr("asyncio.selector_events._SelectorSocketTransport.write_eof", gone)
        raw.writer.write(_head("POST", "/x", {"transfer-encoding": "chunked"}) + b"1\r\n \r\n")
        assert (await raw.reply_to_raw()).status == 404
        monkeypatch.undo()
    assert not defects
    assert not [record for record in told(caplog, "services", "uvicorn") if record.levelname == "ERROR"]
