"""The x-ratelimit headers of OpenAI's API, told of a tenant's bounds: requests at once, and prompts that wait."""

from services.gateway.http.schema.errors import Headers
from services.gateway.tenancy.admission import Room


def rate_limits(room: Room) -> Headers:
    """Headers of the answer to a request that is about to enter; `reset` is when room is to be expected."""
    told = (
        ("requests", room.most_requests, max(room.requests - 1, 0)),
        ("tokens", room.most_tokens, room.tokens),
    )
    headers: Headers = []
    for name, limit, left in told:
        reset = "0s" if left else f"{room.reset_s:.3g}s"
        for kind, value in (("limit", limit), ("remaining", left), ("reset", reset)):
            headers.append((f"x-ratelimit-{kind}-{name}".encode(), str(value).encode()))
    return headers
