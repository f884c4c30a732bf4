"""Where prompts become their own is learnt from how they go on, and chats are known by how they begin."""

import time
from typing import Any

from services.gateway.routing.openings import BEGINNINGS, MANY, Openings, opening_of
from services.gateway.routing.router import PREFIX_BLOCK, prefix_digests

SALT = b"tenant"


def prompt(*blocks: int) -> tuple[bytes, ...]:
    return prefix_digests([block for block in blocks for _ in range(PREFIX_BLOCK)], SALT)


def test_a_beginning_is_everybodys_once_it_has_gone_on_in_many_ways() -> None:
    openings = Openings()
    found = [openings.shared(prompt(1, 2, 100 + chat, 3)) for chat in range(MANY + 2)]
    assert found[0] == 0
    assert found[-1] == 2
    assert sorted(found) == found
    assert openings.shared(prompt(1, 2)) == 2
    assert openings.shared(prompt(5, 2, 7)) == 0


def test_turns_of_one_chat_make_nothing_everybodys() -> None:
    openings = Openings()
    assert not any(openings.shared(prompt(*range(1, 3 + turn))) for turn in range(20))
    assert not any(openings.shared(prompt(1, 2, 3)) for _ in range(2 * MANY))


def test_what_is_watched_is_bounded() -> None:
    openings = Openings()
    for number in range(BEGINNINGS):
        openings.shared((number.to_bytes(4, "little"), b"end"))
    openings.shared((b"one", b"more"))
    assert len(openings) == BEGINNINGS


def said(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def test_all_turns_of_a_chat_have_one_opening_and_other_chats_others() -> None:
    first = (said("system", "Be short."), said("user", "Why?"))
    later = (*first, said("assistant", "So."), said("user", "And?"))
    assert opening_of(first, SALT) == opening_of(later, SALT)
    others = [
        (said("system", "Be long."), said("user", "Why?")),
        (said("system", "Be short."), said("user", "How?")),
        (said("system", "Be short."), said("user", [{"type": "text", "text": "Why?"}])),
        (said("user", "Why?"),),
        (said("system", "Be short.Why?"),),
    ]
    assert len({opening_of(each, SALT) for each in (first, *others)}) == 6
    assert opening_of(first, b"another tenant") != opening_of(first, SALT)


def test_an_opening_is_cheap_of_whatever_is_sent() -> None:
    """By the processor's time, many times what it takes."""
    large = "x" * (1 << 22)
    began = time.process_time()
    for content in (large, [{"text": large}] * 10_000, [0] * 1_000_000, None, {"text": large}, "\ud83d"):
        for messages in ((said("user", content),), (said("system", content),) * 100_000):
            assert len(opening_of(messages, SALT)) == 32
    assert time.process_time() - began < 5.0
