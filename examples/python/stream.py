"""Streams one completion: python -m examples.python.stream [ADDRESS] [PROMPT]."""

import sys

from examples.python.gateway import ADDRESS, connected


def main() -> int:
    """Prints text as it becomes final, then what speculation did."""
    address = sys.argv[1] if len(sys.argv) > 1 else ADDRESS
    prompt = sys.argv[2] if len(sys.argv) > 2 else "def main():"
    with connected(address) as client:
        stream = client.stream(prompt, max_tokens=48, temperature=0.8, seed=1)
        for piece in stream:
            print(piece.text, end="", flush=True)
        answer = stream.answer
    print(f"\n[{answer.finish}, seed {answer.seed}]")
    print(f"[{len(answer.tokens)} tokens in {answer.rounds} rounds, {answer.tau:.1f} tokens per round]")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
