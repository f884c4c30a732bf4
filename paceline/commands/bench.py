"""paceline bench: times to first token, between tokens, and tokens per second of any OpenAI or gRPC address."""

import argparse
import json
import ssl
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from paceline.commands import connection
from paceline.commands.parsing import Parser, whole
from paceline.errors import InvalidValueError, PacelineError
from paceline.load.grpc_endpoint import GrpcEndpoint
from paceline.load.level import Level, measure
from paceline.load.openai_endpoint import OpenaiEndpoint
from paceline.load.report import can_draw, draw, table
from paceline.load.sample import Endpoint, FailedError, Job

PICTURE = "paceline-bench.png"
WORDS = ("the", "list", "of", "every", "number", "that", "returns", "a", "value", "for", "each", "key", "in", "order")


def run(argv: Sequence[str]) -> int:
    """Measures every level and reports; 1 when a request failed."""
    chosen = arguments(argv)
    if chosen.png and not can_draw():
        print("--png needs matplotlib; run: pip install 'paceline[bench]'", file=sys.stderr)
        return 2
    if not Path(chosen.png).parent.is_dir():
        print(f"--png: {chosen.png}: there is no such folder", file=sys.stderr)
        return 2
    console = Console()
    levels: list[Level] = []
    try:
        with opened(chosen) as endpoint:
            endpoint.ask(jobs(chosen, 1, "warm-up")[0])
            for at_once in chosen.concurrency:
                console.print(f"{at_once} at once", style="dim")
                work = jobs(chosen, max(chosen.requests, at_once), f"level {at_once}")
                levels.append(measure(endpoint, work, at_once))
    except FailedError as error:
        raise PacelineError(str(error)) from None
    report(chosen, levels, console)
    return 1 if any(level.failed for level in levels) else 0


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = Parser(prog="paceline bench", description=__doc__)
    parser.add_argument(
        "address", nargs="?", default=connection.ADDRESS, help="HOST:PORT of gRPC, or http://HOST:PORT/v1"
    )
    connection.add_credentials(parser)
    parser.add_argument(
        "--concurrency", type=counts, default="1,4,16", metavar="N,N,...", help="at once; default: %(default)s"
    )
    parser.add_argument(
        "--requests", type=whole(1), default=32, help="of each level, at least its concurrency; default: %(default)s"
    )
    parser.add_argument(
        "--prompt-words", type=whole(), default=64, help="length of made-up prompts; default: %(default)s"
    )
    parser.add_argument(
        "--prompts", type=prompts, default=(), metavar="FILE", help="prompts of your own, one a line, used in turn"
    )
    parser.add_argument("--max-tokens", type=whole(1), default=128, help="most tokens of each; default: %(default)s")
    parser.add_argument("--chat", action="store_true", help="ask as a chat of one message")
    parser.add_argument("--ignore-eos", action="store_true", help="always generate max-tokens, where the server can")
    parser.add_argument("--model", default="", help="model to name; default: the one served, or the first one listed")
    parser.add_argument("--png", default="", metavar="FILE", help=f"the picture; default: {PICTURE}")
    parser.add_argument("--json", action="store_true", help="print the levels as one line of JSON, too")
    return parser.only(argv)


def counts(text: str) -> list[int]:
    """Concurrencies: positive numbers with commas between.

    Raises:
        argparse.ArgumentTypeError: it is something else.
    """
    words = text.split(",")
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of positive numbers")
    return [int(word) for word in words]


def prompts(path: str) -> Sequence[str]:
    """Lines of a file.

    Raises:
        argparse.ArgumentTypeError: it cannot be read, or has no line.
    """
    try:
        found = [line for line in connection.content(path, path).decode().splitlines() if line.strip()]
    except InvalidValueError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix(f"{path}: ")) from None
    except UnicodeDecodeError:
        raise argparse.ArgumentTypeError(f"{path}: is not valid UTF-8") from None
    if not found:
        raise argparse.ArgumentTypeError(f"{path}: has no line with a prompt")
    return found


@contextmanager
def opened(chosen: argparse.Namespace) -> Iterator[Endpoint]:
    """The endpoint at the address: HTTP where it is a URL, else gRPC."""
    if chosen.address.startswith(("http://", "https://")):
        files = connection.certificates(chosen)
        tls = ssl.create_default_context(cafile=files.ca or None if files else None)
        if files and files.cert:
            tls.load_cert_chain(files.cert, files.key)
        yield OpenaiEndpoint(chosen.address, chosen.model, connection.key(chosen), tls)
    else:
        with connection.client(chosen) as client:
            yield GrpcEndpoint(client, chosen.model)


def jobs(chosen: argparse.Namespace, number: int, name: str) -> list[Job]:
    """Requests of one level; made-up prompts begin differently, so that no prefix cache knows them."""
    own = chosen.prompts
    texts = (
        own[index % len(own)] if own else _made_up(f"{name}, {index}", chosen.prompt_words) for index in range(number)
    )
    return [Job(text, chosen.max_tokens, chosen.chat, chosen.ignore_eos) for text in texts]


def _made_up(name: str, words: int) -> str:
    return f"# {name}: " + " ".join(WORDS[index % len(WORDS)] for index in range(words))


def report(chosen: argparse.Namespace, levels: Sequence[Level], console: Console) -> None:
    """Prints the table, writes the picture, and says what failed."""
    title = f"{chosen.address}, {chosen.max_tokens} tokens"
    console.print(table(title, levels))
    for level in levels:
        if level.failed:
            print(f"{level.failed} of {level.requests} requests failed, {level.concurrency} at once: {level.error}")
    if can_draw():
        path = Path(chosen.png or PICTURE)
        draw(title, levels, path)
        print(f"picture: {path}")
    else:
        print("no picture: matplotlib is missing; pip install 'paceline[bench]'")
    if chosen.json:
        print(json.dumps([asdict(level) for level in levels]))
