"""paceline generate: streams one completion, or the answer of one chat, to the terminal."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from paceline.answer import Answer
from paceline.client import Client
from paceline.commands import connection
from paceline.commands.parsing import Parser, number, whole
from paceline.commands.terminal import printable
from paceline.options import Message, Options, Prompt


def run(argv: Sequence[str]) -> int:
    """Generates from the prompt."""
    chosen = arguments(argv)
    options = Options(
        model=chosen.model,
        max_tokens=chosen.max_tokens,
        temperature=chosen.temperature,
        top_p=chosen.top_p,
        stop=chosen.stop,
        seed=chosen.seed,
    )
    with connection.client(chosen) as client:
        text = sys.stdin.read() if chosen.prompt is None else chosen.prompt
        prompt: Prompt = [Message("system", chosen.system), Message("user", text)] if chosen.system else text
        if chosen.json:
            print(as_json(client.generate(prompt, options)))
        else:
            show(client, prompt, options, "" if chosen.system else text)
    return 0


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = Parser(prog="paceline generate", description=__doc__)
    parser.add_argument("prompt", nargs="?", help="what the text begins with; standard input when absent")
    connection.add_flags(parser)
    connection.add_model(parser)
    parser.add_argument(
        "--max-tokens", type=whole(), default=128, help="most tokens of the answer; default: %(default)s"
    )
    parser.add_argument("--temperature", type=number, default=0.0, help="0 takes the best token; default: %(default)s")
    parser.add_argument("--top-p", type=number, default=None, help="mass of the best tokens kept; default: all")
    parser.add_argument(
        "--stop",
        action="append",
        default=[],
        metavar="TEXT",
        help="ends the answer and is cut from it; may be repeated",
    )
    parser.add_argument("--system", default="", help="ask as a chat that begins with this message of role system")
    parser.add_argument("--json", action="store_true", help="print the answer at its end, as one line of JSON")
    parser.add_argument("--seed", type=whole(), default=0, help="seed of the noise; default: %(default)s")
    return parser.only(argv)


def as_json(answer: Answer) -> str:
    """One line with the fields of an answer, tokens a round and a second beside."""
    told = asdict(answer) | {"tau": round(answer.tau, 3), "decode_tok_s": round(answer.decode_tok_s, 1)}
    return json.dumps(told, ensure_ascii=False)


def show(client: Client, prompt: Prompt, options: Options, before: str) -> None:
    """Prints what stands before the answer, the answer as it comes, then what speculation did."""
    stream = client.stream(prompt, options)
    print(before, end="", flush=True)
    for piece in stream:
        print(printable(piece.text), end="", flush=True)
    print(f"\n[{len(stream.answer.tokens)} tokens in {stream.answer.rounds} rounds]")
