"""Descriptors over the side socket: only for the claim on offer, and none is ever lost."""

import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.common.pair.side_socket import DescriptorListener, fetch_descriptors


@pytest.fixture
def listener() -> Iterator[DescriptorListener]:
    with tempfile.TemporaryDirectory(prefix="pl-") as folder:
        found = DescriptorListener(Path(folder) / "run")
        yield found
        found.close()


@pytest.fixture
def memory() -> Iterator[int]:
    descriptor = os.memfd_create("side-socket-test")
    os.write(descriptor, b"shared")
    yield descriptor
    os.close(descriptor)


def _open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_the_claim_on_offer_gets_the_memory(listener: DescriptorListener, memory: int) -> None:
    listener.offer(3, 99, [memory, memory])
    fetched = fetch_descriptors(listener.path, 3, 99, count=2)
    assert [os.pread(descriptor, 6, 0) for descriptor in fetched.descriptors] == [b"shared", b"shared"]
    assert fetched.peer_pid == listener.claimed_by == os.getpid()
    assert not any(os.get_inheritable(descriptor) for descriptor in fetched.descriptors)
    fetched.close()


@pytest.mark.parametrize(("generation", "nonce"), [(3, 98), (4, 99), (0, 0), (99, 3)])
def test_another_claim_gets_nothing(listener: DescriptorListener, memory: int, generation: int, nonce: int) -> None:
    listener.offer(3, 99, [memory])
    with pytest.raises(PermissionError):
        fetch_descriptors(listener.path, generation, nonce, count=1)
    assert listener.claimed_by == 0


def test_nothing_is_given_before_an_offer_or_after_its_end(listener: DescriptorListener, memory: int) -> None:
    with pytest.raises(PermissionError):
        fetch_descriptors(listener.path, 0, 0, count=1)
    listener.offer(3, 99, [memory])
    listener.withdraw()
    with pytest.raises(PermissionError):
        fetch_descriptors(listener.path, 3, 99, count=1)


def test_a_new_offer_replaces_the_old(listener: DescriptorListener, memory: int) -> None:
    listener.offer(3, 99, [memory])
    listener.offer(4, 100, [memory])
    with pytest.raises(PermissionError):
        fetch_descriptors(listener.path, 3, 99, count=1)
    fetch_descriptors(listener.path, 4, 100, count=1).close()


def test_a_peer_that_hangs_up_early_hurts_nobody(listener: DescriptorListener, memory: int) -> None:
    listener.offer(3, 99, [memory])
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
        stranger.connect(listener.path)
        stranger.sendall(b"half")
    fetch_descriptors(listener.path, 3, 99, count=1).close()


def test_the_target_may_take_over_the_connection_of_a_granted_claim(listener: DescriptorListener, memory: int) -> None:
    listener.offer(3, 99, [memory])
    fetched = fetch_descriptors(listener.path, 3, 99, count=1)
    connection = listener.take_connection()
    assert connection is not None
    assert listener.take_connection() is None
    with connection:
        connection.sendall(b"turn")
        assert fetched.connection.recv(4) == b"turn"
    fetched.close()


def test_a_connection_that_was_hung_up_or_not_taken_is_none(listener: DescriptorListener, memory: int) -> None:
    assert listener.take_connection() is None
    listener.offer(3, 99, [memory])
    fetch_descriptors(listener.path, 3, 99, count=1).close()
    assert listener.take_connection() is None
    fetched = fetch_descriptors(listener.path, 3, 99, count=1)
    listener.withdraw()
    assert fetched.connection.recv(1) == b"", "withdrawing ends what nobody took"
    fetched.close()


def test_only_the_owner_may_enter(listener: DescriptorListener) -> None:
    path = Path(listener.path)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_close_removes_the_socket_and_may_come_twice(listener: DescriptorListener) -> None:
    listener.close()
    listener.close()
    assert not Path(listener.path).exists()
    with pytest.raises(OSError):  # noqa: PT011
        fetch_descriptors(listener.path, 0, 0, count=1)


def test_no_descriptor_is_lost(listener: DescriptorListener, memory: int) -> None:
    listener.offer(3, 99, [memory] * 3)
    fetch_descriptors(listener.path, 3, 99, count=3).close()
    before = _open_descriptors()
    for attempt in range(50):
        if attempt % 2:
            fetch_descriptors(listener.path, 3, 99, count=3).close()
        else:
            with pytest.raises(PermissionError):
                fetch_descriptors(listener.path, 3, 99, count=2)
    assert _open_descriptors() < before + 25
