"""Stops a stream in the middle: python -m examples.python.cancel [ADDRESS].

Cancelling frees the request's memory within two rounds; leaving the loop without cancelling would not.
"""

import sys

from examples.python.gateway import ADDRESS, connected

ENOUGH = 16


def main() -> int:
    """Cancels once enough tokens have come."""
    address = sys.argv[1] if len(sys.argv) > 1 else ADDRESS
    with connected(address) as client:
        stream = client.stream("import os", max_tokens=400, ignore_eos=True)
        for _ in stream:
            if len(stream.answer.tokens) >= ENOUGH:
                stream.cancel()
        print(f"{stream.answer.finish} after {len(stream.answer.tokens)} tokens")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
