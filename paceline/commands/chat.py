"""paceline chat: a conversation with a served model.

An empty line is passed over, /new forgets the conversation, /exit or Ctrl-D ends it; Ctrl-C ends an answer.
"""

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from paceline.answer import Answer
from paceline.client import Client, Stream
from paceline.commands import connection
from paceline.commands.terminal import printable
from paceline.errors import RefusedError
from paceline.options import Message, Options
from paceline.served import Model

EMBEDDED = "paceline-embedded"
HINT = "/new forgets, /exit ends, Ctrl-C ends an answer"


def run(argv: Sequence[str]) -> int:
    """Talks until the input ends."""
    chosen = arguments(argv)
    console = Console(highlight=False, soft_wrap=True)
    with connection.client(chosen) as client:
        console.print(Text(greeting(client.model())))
        Chat(client, console, options(chosen), chosen.system).run()
    return 0


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    about = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="paceline chat", description=__doc__, formatter_class=about)
    connection.add_flags(parser)
    parser.add_argument("--system", default="", help="a first message with role system")
    parser.add_argument("--max-tokens", type=int, default=512, help="most tokens of an answer; default: %(default)s")
    parser.add_argument("--temperature", type=float, default=0.7, help="0 takes the best token; default: %(default)s")
    parser.add_argument("--top-p", type=float, default=0.9, help="mass of the best tokens kept; default: %(default)s")
    parser.add_argument(
        "--seed", type=int, default=None, help="seed of the noise; default: another one for each answer"
    )
    parser.add_argument("--no-thinking", action="store_true", help="ask the template of Qwen3 not to think")
    return parser.parse_args(argv)


def options(chosen: argparse.Namespace) -> Options:
    """How answers are made."""
    return Options(
        max_tokens=chosen.max_tokens,
        temperature=chosen.temperature,
        top_p=chosen.top_p,
        seed=chosen.seed,
        template={"enable_thinking": False} if chosen.no_thinking else {},
    )


def greeting(model: Model) -> str:
    """The first line: what one talks to."""
    if model.name == EMBEDDED:
        return f"{model.name}: the small embedded demonstration model; it writes Python-like text and answers nothing"
    return f"{model.name} ({HINT})"


class Chat:
    """One conversation; every message so far is sent again with the next one."""

    def __init__(self, client: Client, console: Console, options: Options, system: str) -> None:
        """Starts with the system's message, if there is one."""
        self._client = client
        self._console = console
        self._options = options
        self._start = [Message("system", system)] if system else []
        self._messages = [*self._start]
        _edit_lines()

    def run(self) -> None:
        """Answers line by line."""
        while (line := self._line()) is not None:
            if line == "/exit":
                return
            if line == "/new":
                self._messages = [*self._start]
            elif line:
                self._answer(line)

    def _line(self) -> str | None:
        """What the user types, None at the end; Ctrl-C drops what was typed."""
        try:
            return input("> " if sys.stdin.isatty() else "").strip()
        except EOFError:
            return None
        except KeyboardInterrupt:
            self._console.print()
            return ""

    def _answer(self, line: str) -> None:
        try:
            self._turn(line)
        except KeyboardInterrupt:
            self._console.print()  # It came before the answer began, or when it had ended.

    def _turn(self, line: str) -> None:
        messages = [*self._messages, Message("user", line)]
        stream = self._client.stream(messages, self._options)
        try:
            self._show(stream)
        except RefusedError as error:
            self._console.print(Text(str(error), style="red"))
            return
        answer = stream.answer
        self._console.print(Text(summary(answer), style="dim"))
        if answer.text:
            self._messages = [*messages, Message("assistant", answer.text)]

    def _show(self, stream: Stream) -> None:
        """Prints the answer as it comes; Ctrl-C ends it and nothing else."""
        try:
            for piece in stream:
                print(printable(piece.text), end="", flush=True)
        except KeyboardInterrupt:
            stream.cancel()
        print()


def summary(answer: Answer) -> str:
    """One line about an answer: its end, tokens, tokens per round and second."""
    parts = [answer.finish, f"{len(answer.tokens)} tokens"]
    parts += [f"{answer.tau:.2f} tokens per round"] if answer.rounds else []
    parts += [f"{answer.decode_tok_s:.0f} tok/s"] if answer.decode_tok_s else []
    parts += [f"first after {answer.first_s * 1e3:.0f} ms"] if answer.tokens else []
    return f"[{', '.join(parts)}]"


def _edit_lines() -> None:
    """Arrow keys edit the line and bring earlier ones back, where the terminal and this Python can."""
    try:
        import readline  # noqa: F401 - importing it is what gives input() its history
    except ImportError:
        pass
