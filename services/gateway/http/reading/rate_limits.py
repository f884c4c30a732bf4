"""The x-ratelimit headers of OpenAI's API: requests of a tenant at once, and its tokens a minute or those that wait."""

from functools import lru_cache

from services.gateway.http.schema.errors import Headers
from services.gateway.tenancy.admission import Room


def rate_limits(room: Room) -> Headers:
    """Headers of the answer to a request that is about to enter; `reset` is when room is to be expected."""
    tokens_s = room.reset_s if room.tokens_reset_s is None else room.tokens_reset_s
    told = (
        ("requests", room.most_requests, max(room.requests - 1, 0), room.reset_s),
        ("tokens", room.most_tokens, room.tokens, tokens_s),
    )
    return [line for name, limit, left, reset_s in told for line in _lines(name, limit, left, 0.0 if left else reset_s)]


@lru_cache(maxsize=1024)
def _lines(name: str, limit: int, left: int, reset_s: float) -> Headers:
    told = (("limit", limit), ("remaining", left), ("reset", f"{reset_s:.3g}s"))
    return [(f"x-ratelimit-{kind}-{name}".encode(), str(value).encode()) for kind, value in told]
