"""Where prompts become their own: behind what many share, such as a system prompt, and at a chat's first question."""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

MANY = 8
"""Times that a beginning went on otherwise than before, from which on it is everybody's and says nothing of a chat."""

BEGINNINGS = 16_384
"""That are watched; those that were not used for longest are forgotten first."""


LOOKED_AT, GLIMPSE = 16, 1024
"""First messages of a chat, and parts of one, that tell it from others; characters of each end of a text."""


class Openings:
    """Learns which beginnings many prompts share; pure.

    Whoever has the requests of a fleet sees the same ones soon, so that gateways that know nothing of one another come
    to the same places.
    """

    def __init__(self) -> None:
        """Nothing is shared yet."""
        self._next: OrderedDict[bytes, tuple[bytes, int]] = OrderedDict()

    def __len__(self) -> int:
        """Beginnings that are watched."""
        return len(self._next)

    def shared(self, digests: Sequence[bytes]) -> int:
        """How many of a prompt's first blocks are everybody's; notes how the prompt goes on behind each."""
        shared = 0
        for number, digest in enumerate(digests):
            last, others = self._next.pop(digest, (b"", 0))
            following = digests[number + 1] if number + 1 < len(digests) else last
            others = min(others + (last not in (b"", following)), MANY)
            self._next[digest] = following, others
            if others == MANY:
                shared = number + 1
        while len(self._next) > BEGINNINGS:
            self._next.popitem(last=False)
        return shared


def opening_of(messages: Sequence[Mapping[str, Any]], salt: bytes) -> bytes:
    """What all turns of a chat begin with, as a salted hash: its messages up to the first of a user.

    Of long texts their length and both ends are taken, so that it costs the same whatever a client sends.
    """
    seen = hashlib.sha256(salt)
    for message in messages[:LOOKED_AT]:
        content = message.get("content")
        short = content if isinstance(content, str) and len(content) <= 2 * GLIMPSE else _glimpse(content)
        seen.update(repr(short).encode("utf-8", "surrogatepass"))
        if message.get("role") == "user":
            break
    return seen.digest()


def _glimpse(content: object) -> object:
    if isinstance(content, str):
        return len(content), content[:GLIMPSE], content[-GLIMPSE:]
    if isinstance(content, list | tuple):
        parts = [part.get("text") if isinstance(part, Mapping) else None for part in content[:LOOKED_AT]]
        return len(content), *(_glimpse(part) for part in parts if isinstance(part, str))
    return None
