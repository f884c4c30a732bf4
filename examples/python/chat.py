"""Talks in turns: python -m examples.python.chat [ADDRESS]; an empty line ends it."""

import sys

from examples.python.gateway import ADDRESS, connected


def main() -> int:
    """Reads lines from standard input and answers each, with all earlier turns in view."""
    address = sys.argv[1] if len(sys.argv) > 1 else ADDRESS
    messages: list[dict[str, str]] = []
    with connected(address) as client:
        for line in sys.stdin:
            if not line.strip():
                break
            messages.append({"role": "user", "content": line.strip()})
            stream = client.stream(messages, max_tokens=64, temperature=0.7, top_p=0.9)
            for piece in stream:
                print(piece.text, end="", flush=True)
            print()
            messages.append({"role": "assistant", "content": stream.answer.text})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
