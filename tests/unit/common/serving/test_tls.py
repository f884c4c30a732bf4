"""TLS, mTLS and rotation without a restart, over real sockets."""

import asyncio
import os
import socket
import ssl
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from prometheus_client import CollectorRegistry

from services.common.metrics.catalogue import GatewayMetrics
from services.common.serving.certificates import observe_certificates
from services.common.serving.channel import connect
from services.common.serving.tls import Peers, TlsFiles, channel_credentials, expiry, server_credentials
from tests.support.metrics import value_of
from tests.unit.common.serving.certificates import NOW, Authority
from tests.unit.common.serving.fleet import server, watch


def serial(path: str) -> int:
    return x509.load_pem_x509_certificate(Path(path).read_bytes()).serial_number


def served_serial(address: str) -> int:
    """Serial number of the certificate that a server presents."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as plain, context.wrap_socket(plain) as secure:
        data = secure.getpeercert(binary_form=True)
    assert data is not None
    return x509.load_der_x509_certificate(data).serial_number


async def test_mtls_needs_a_certificate_of_the_authority(tmp_path: Path) -> None:
    authority, stranger = Authority.make(), Authority.make()
    ca = authority.write(tmp_path / "ca.pem")
    made = server(entry=server_credentials(TlsFiles(*authority.issue(tmp_path / "server", "target"), ca)))
    bound = await made.start()
    client = TlsFiles(*authority.issue(tmp_path / "client", "gateway"), ca)
    async with connect(bound.grpc, channel_credentials(client)) as channel:
        assert await watch(channel, 5) == 5
    wrong = (TlsFiles(ca=ca), TlsFiles(*stranger.issue(tmp_path / "wrong", "gateway"), ca))
    for files in wrong:
        async with connect(bound.grpc, channel_credentials(files)) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await watch(channel)
            assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    await made.stop(0)


async def test_a_rotated_certificate_is_served_without_a_restart(tmp_path: Path) -> None:
    authority = Authority.make()
    files = TlsFiles(*authority.issue(tmp_path / "server", "one"))
    before = serial(files.cert)
    made = server(entry=server_credentials(files))
    bound = await made.start()
    first = await asyncio.to_thread(served_serial, bound.grpc)
    authority.issue(tmp_path / "server", "two")
    os.utime(files.cert, ns=(0, 0))  # a changed time is a change, whichever way
    second = await asyncio.to_thread(served_serial, bound.grpc)
    assert (first, second) == (before, serial(files.cert))
    assert first != second
    key = Path(files.key).read_bytes()
    Path(files.key).write_bytes(Path(authority.issue(tmp_path / "other", "three")[1]).read_bytes())
    assert await asyncio.to_thread(served_serial, bound.grpc) == second, "the key of another certificate is not taken"
    os.unlink(files.key)
    assert await asyncio.to_thread(served_serial, bound.grpc) == second
    Path(files.key).write_bytes(key)
    assert await asyncio.to_thread(served_serial, bound.grpc) == second
    trusted = channel_credentials(TlsFiles(ca=authority.write(tmp_path / "ca.pem")))
    async with connect(bound.grpc, trusted) as channel:
        assert await watch(channel) == 1
    await made.stop(0)


async def test_peers_are_reached_by_address_and_known_by_name(tmp_path: Path) -> None:
    authority = Authority.make()
    ca = authority.write(tmp_path / "ca.pem")
    issued = authority.issue(tmp_path / "target", "target", host="targets.internal")
    made = server(entry=server_credentials(TlsFiles(*issued, ca)))
    bound = await made.start()
    files = TlsFiles(*authority.issue(tmp_path / "gateway", "gateway"), ca)
    async with Peers(files, "targets.internal").connect(bound.grpc) as channel:
        assert await watch(channel, 9) == 9
    async with Peers(files).connect(bound.grpc) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await watch(channel)
    await made.stop(0)


def test_files_are_true_when_tls_is_wanted() -> None:
    assert not TlsFiles()
    assert TlsFiles(ca="ca.pem")


def test_expiry_is_read_and_published(tmp_path: Path) -> None:
    cert, key = Authority.make().issue(tmp_path / "server", "one", days=3)
    assert expiry(cert) == pytest.approx(NOW.timestamp() + 3 * 86_400, abs=2)
    metrics = GatewayMetrics(CollectorRegistry(), "m")
    observe_certificates(metrics, TlsFiles(cert, key, str(tmp_path / "none.pem")))
    assert value_of(metrics.certificate_expiry_timestamp_seconds[cert]) == expiry(cert)
    assert value_of(metrics.certificate_expiry_timestamp_seconds[str(tmp_path / "none.pem")]) == 0
