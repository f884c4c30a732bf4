"""paceline chat: a conversation with a served model.

Several lines that are pasted are one message. /help lists the commands, Ctrl-C ends an answer, Ctrl-D the conversation.
"""

import argparse
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from paceline.answer import Answer
from paceline.client import Client, Stream
from paceline.commands import connection
from paceline.commands.lines import Lines, history_file
from paceline.commands.parsing import Parser, number, whole
from paceline.commands.terminal import printable, unechoed
from paceline.errors import RefusedError
from paceline.options import Message, Options
from paceline.served import Model

EMBEDDED = "paceline-embedded"
HINT = "/new forgets, /help tells more, /exit ends; Ctrl-C ends an answer"
HELP = """\
/new          forgets the conversation
/system TEXT  forgets it, and begins with TEXT as the message of role system; without TEXT, with none
/help         shows this
/exit         ends, as Ctrl-D does
Ctrl-C ends an answer. Several lines that are pasted are one message. A space before / sends it as text."""


def run(argv: Sequence[str]) -> int:
    """Talks until the input ends."""
    chosen = arguments(argv)
    console = Console(highlight=False, soft_wrap=True)
    with connection.client(chosen) as client:
        console.print(Text(greeting(client.model(chosen.model))))
        lines = Lines(None if chosen.no_history else history_file())
        Chat(client, console, options(chosen), chosen.system, lines).run()
    return 0


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    about = argparse.RawDescriptionHelpFormatter
    parser = Parser(prog="paceline chat", description=__doc__, formatter_class=about)
    connection.add_flags(parser)
    connection.add_model(parser)
    parser.add_argument("--system", default="", help="a first message with role system")
    parser.add_argument(
        "--max-tokens", type=whole(), default=512, help="most tokens of an answer; default: %(default)s"
    )
    parser.add_argument("--temperature", type=number, default=0.7, help="0 takes the best token; default: %(default)s")
    parser.add_argument("--top-p", type=number, default=0.9, help="mass of the best tokens kept; default: %(default)s")
    parser.add_argument(
        "--seed", type=whole(), default=None, help="seed of the noise; default: another one for each answer"
    )
    parser.add_argument("--no-history", action="store_true", help="keep nothing of what is typed")
    parser.add_argument("--no-thinking", action="store_true", help="ask the template of Qwen3 not to think")
    return parser.only(argv)


def options(chosen: argparse.Namespace) -> Options:
    """How answers are made."""
    return Options(
        model=chosen.model,
        max_tokens=chosen.max_tokens,
        temperature=chosen.temperature,
        top_p=chosen.top_p,
        seed=chosen.seed,
        template={"enable_thinking": False} if chosen.no_thinking else {},
    )


def greeting(model: Model) -> str:
    """The first line: what one talks to."""
    if model.name == EMBEDDED:
        about = "the small embedded demonstration model; it writes Python-like text and answers nothing"
        return f"{model.name}: {about} ({HINT})"
    return f"{model.name} ({HINT})"


def is_command(message: str) -> bool:
    """Whether a message is a slash and a word, perhaps with more behind: a path is text."""
    name = message.split(maxsplit=1)[0] if message.startswith("/") else ""
    return name[1:].isalpha() and "\n" not in message.strip()


class Chat:
    """One conversation; every message so far is sent again with the next one."""

    def __init__(self, client: Client, console: Console, options: Options, system: str, lines: Lines) -> None:
        """Starts with the system's message, if there is one."""
        self._client = client
        self._console = console
        self._options = options
        self._lines = lines
        self._begin(system)

    def run(self) -> None:
        """Answers message by message."""
        while (message := self._message()) is not None:
            if is_command(message):
                if message.split()[0] == "/exit":
                    return
                self._command(message)
            elif message.strip():
                self._lines.remember(message)
                self._answer(message.strip())

    def _begin(self, system: str) -> None:
        """Forgets everything and begins with the system's message, if there is one."""
        self._system = system
        self._messages = [Message("system", system)] if system else []

    def _command(self, message: str) -> None:
        name, _, rest = message.strip().partition(" ")
        if name == "/new":
            self._begin(self._system)
        elif name == "/system":
            self._begin(rest.strip())
        else:
            unknown = "" if name == "/help" else f"no such command: {printable(name)}\n"
            self._console.print(Text(unknown + HELP, style="dim"))

    def _message(self) -> str | None:
        """What the user types, None at the end; Ctrl-C drops what was typed."""
        try:
            return self._lines.read()
        except EOFError:
            return None
        except KeyboardInterrupt:
            self._console.print()
            return ""

    def _answer(self, line: str) -> None:
        try:
            with unechoed():
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
