"""Turns over a socket: whole messages, time limits, and an end that both sides see."""

import socket
import threading
from collections.abc import Iterator

import pytest

from services.common.pair.turns import BEHIND_PROMPTS, NODES, Answer, Ask, TurnSocket, answering_end, asking_end
from services.common.pair.wire_convert import ask_to_pb

ASK = Ask(generation=2**63, round=7, bucket=4, width=8, rows=3)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


@pytest.fixture
def target(pair: tuple[socket.socket, socket.socket]) -> TurnSocket[Ask, Answer]:
    return asking_end(pair[0])


@pytest.fixture
def drafter(pair: tuple[socket.socket, socket.socket]) -> TurnSocket[Answer, Ask]:
    return answering_end(pair[1])


def test_a_turn_there_and_back(target: TurnSocket[Ask, Answer], drafter: TurnSocket[Answer, Ask]) -> None:
    target.send(ASK)
    assert drafter.receive(None) == ASK
    drafter.send(Answer(2**63, 7, 900))
    assert target.receive(1.0) == Answer(2**63, 7, 900)


@pytest.mark.parametrize("bits", [NODES, BEHIND_PROMPTS, NODES | BEHIND_PROMPTS])
def test_a_request_says_what_it_wants(
    target: TurnSocket[Ask, Answer], drafter: TurnSocket[Answer, Ask], bits: int
) -> None:
    """The same over gRPC."""
    wanted = ASK._replace(bits=bits)
    assert target.send(wanted)
    assert drafter.receive(None) == wanted
    told = ask_to_pb(wanted)
    assert NODES * told.nodes | BEHIND_PROMPTS * told.behind_prompts == bits


def test_a_message_in_pieces_is_taken_whole_and_a_part_is_kept(
    pair: tuple[socket.socket, socket.socket], target: TurnSocket[Ask, Answer]
) -> None:
    bytes_ = bytes(range(40))
    pair[1].sendall(bytes_[:13])
    with pytest.raises(TimeoutError):
        target.receive(0.01)
    pair[1].sendall(bytes_[13:])
    first, second = target.receive(1.0), target.receive(1.0)
    assert first is not None
    assert second is not None
    assert first.round == int.from_bytes(bytes_[8:16], "little")
    assert second.draft_us == int.from_bytes(bytes_[36:40], "little")


def test_silence_has_a_limit_even_when_bytes_drip(
    pair: tuple[socket.socket, socket.socket], target: TurnSocket[Ask, Answer]
) -> None:
    stop = threading.Event()

    def drip() -> None:
        while not stop.wait(0.04):
            pair[1].send(b"x")

    dripping = threading.Thread(target=drip)
    dripping.start()
    with pytest.raises(TimeoutError):
        target.receive(0.1)
    stop.set()
    dripping.join()


def test_closing_wakes_who_waits_and_ends_it_for_the_peer(
    target: TurnSocket[Ask, Answer], drafter: TurnSocket[Answer, Ask]
) -> None:
    ends: list[object] = []
    waiting = threading.Thread(target=lambda: ends.append(drafter.receive(None)))
    waiting.start()
    drafter.close()
    waiting.join(5.0)
    assert ends == [None]
    assert target.receive(5.0) is None
    target.send(ASK)
    target.close()
    target.close()
    assert target.receive(1.0) is None
