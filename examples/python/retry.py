"""Retries what may be retried: python -m examples.python.retry [ADDRESS].

Safe to repeat before the first token are UNAVAILABLE, RESOURCE_EXHAUSTED and a gateway that does not answer; an
idempotency key keeps a repeat from running twice. A stream that has begun needs no retry: the gateway itself moves it
to another target.
"""

import random
import sys
import time
import uuid

from examples.python.gateway import ADDRESS, connected
from paceline import Client, NoGatewayError, Options, PacelineError, RefusedError

AGAIN = ("UNAVAILABLE", "RESOURCE_EXHAUSTED")
ATTEMPTS = 6


def may_repeat(error: PacelineError) -> bool:
    """Whether the same call may succeed later: a gateway that starts anew answers nobody for a while."""
    return isinstance(error, NoGatewayError) or (isinstance(error, RefusedError) and error.code in AGAIN)


def generate(client: Client, prompt: str, options: Options) -> str:
    """The whole text.

    Raises:
        PacelineError: it failed for good, or after some text had come.
    """
    for attempt in range(ATTEMPTS):
        text = ""
        try:
            for piece in client.stream(prompt, options):
                text += piece.text
            return text
        except PacelineError as error:
            if text or not may_repeat(error) or attempt == ATTEMPTS - 1:
                raise
            pause_s = getattr(error, "retry_after_s", None) or 0.2 * 2**attempt
            print(f"{error}: again in {pause_s:.1f} s", file=sys.stderr)
            time.sleep(pause_s * random.uniform(1.0, 1.5))
    raise AssertionError("the last attempt returns or raises")


def main() -> int:
    """Generates one text under a key of its own."""
    address = sys.argv[1] if len(sys.argv) > 1 else ADDRESS
    with connected(address) as client:
        options = Options(max_tokens=24, idempotency_key=uuid.uuid4().hex)
        print(generate(client, "def add(a, b):", options))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
