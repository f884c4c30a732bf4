"""paceline generate: streams one completion to the terminal."""

import argparse
import sys
from collections.abc import Sequence

from paceline.client import Client
from paceline.commands import connection
from paceline.commands.terminal import printable
from paceline.options import Options


def run(argv: Sequence[str]) -> int:
    """Generates from the prompt."""
    chosen = arguments(argv)
    options = Options(max_tokens=chosen.max_tokens, temperature=chosen.temperature, seed=chosen.seed)
    with connection.client(chosen) as client:
        prompt = sys.stdin.read() if chosen.prompt is None else chosen.prompt
        show(client, prompt, options)
    return 0


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="paceline generate", description=__doc__)
    parser.add_argument("prompt", nargs="?", help="what the text begins with; standard input when absent")
    connection.add_flags(parser)
    parser.add_argument("--max-tokens", type=int, default=128, help="most tokens of the answer; default: %(default)s")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 takes the best token; default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="seed of the noise; default: %(default)s")
    return parser.parse_args(argv)


def show(client: Client, prompt: str, options: Options) -> None:
    """Prints the prompt and its completion as it comes, then what speculation did."""
    stream = client.stream(prompt, options)
    print(prompt, end="", flush=True)
    for piece in stream:
        print(printable(piece.text), end="", flush=True)
    print(f"\n[{len(stream.answer.tokens)} tokens in {stream.answer.rounds} rounds]")
