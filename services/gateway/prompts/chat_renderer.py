"""Renders chats by the checkpoint's template in child processes; a child that takes too long is killed."""

import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from services.common.request.errors import PacelineError, invalid_field, overloaded
from services.common.serving.files import read_regular
from services.gateway.prompts.chat_child import LENGTH, RENDERED, send
from services.gateway.prompts.chat_template import SPECIAL_TOKENS, check_syntax

FIELD = "prompt.chat"
ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ")
"""Variables that a child inherits: what Python starts by, and what dates are written by. Others may hold secrets."""

MARK = "\ue000END OF THE LAST MESSAGE\ue000 "
"""Stands behind a message that is continued, and shows where it ends and whether the template strips."""

LIMIT_S = 1.0
"""Time of one rendering; templates of published models take less than a millisecond for a usual chat."""

# Where the ticks of user and system stand in /proc/PID/stat, behind the name.
_USER = 11

START_S, LONGEST_START_S = 10.0, 60.0
"""Time to start Python and compile the template; the longer one where the machine gives a child no processor."""

BUSY = 0.25
"""Share of the time that a child must have computed, so that its chat is what took it: others may be in its way."""


class ChatRenderer:
    """One template and the children that run it, as many as threads render at once; a chat blocks its thread."""

    def __init__(self, source: str, special_tokens: Mapping[str, str], limit_s: float = LIMIT_S) -> None:
        """Checks the template's syntax.

        Raises:
            jinja2.TemplateSyntaxError: it is none.
        """
        check_syntax(source)
        self.source = source
        self._first = json.dumps({"source": source, "special_tokens": dict(special_tokens)}).encode()
        self._limit_s = limit_s
        self._idle: list[_Child] = []
        self._closed = False

    def render(
        self,
        messages: Sequence[Any],
        tools: Sequence[Any] = (),
        arguments: Mapping[str, Any] | None = None,
        check_size: Callable[[int], None] = lambda size: None,
    ) -> str:
        """The prompt, up to where the assistant's answer begins.

        `check_size` is told its bytes before a text is made of them, which may take four times as many.

        Raises:
            PacelineError: INVALID_FIELD when the template refuses the chat, takes too long or too much memory;
                OVERLOADED when no process can be started.
        """
        given = dict(arguments or {})
        continues = bool(given.get("continue_final_message"))
        listed = [*messages[:-1], messages[-1] | {"content": messages[-1]["content"] + MARK}] if continues else messages
        rendered, answer = self._asked(_frame(listed, tools, given))
        if not rendered and (joined := one_system_message(listed)) != listed:
            again, said = self._asked(_frame(joined, tools, given))
            rendered, answer = (again, said) if again else (rendered, answer)
        if not rendered:
            raise invalid_field(FIELD, answer.decode())
        check_size(len(answer))
        text = answer.decode()
        return _continued(text) if continues else text

    def close(self) -> None:
        """Ends the children; one that renders ends after its chat."""
        self._closed = True
        while self._idle:
            self._idle.pop().end()

    def _asked(self, chat: bytes) -> tuple[bool, bytearray]:
        """Whether a child rendered, and what it says.

        One that ended or got no processor says little of the chat, so a new one is asked then.
        """
        try:
            return self._answer(chat, self._ready)
        except _LostError:
            pass
        try:
            return self._answer(chat, self._begun)
        except _LostError as error:
            raise error.fault from error

    def _answer(self, chat: bytes, child_of: Callable[[], "_Child"]) -> tuple[bool, bytearray]:
        try:
            child = child_of()
        except OSError as error:
            raise overloaded("the chat template's process cannot be started", 1.0) from error
        before_s = child.computed_s()
        try:
            answer = child.ask(chat, self._limit_s)
        except TimeoutError:
            computed_s = child.computed_s() - before_s
            child.end()
            fault = invalid_field(FIELD, f"the chat template takes longer than {self._limit_s:g} s for this chat")
            if computed_s < BUSY * self._limit_s:
                raise _LostError(fault) from None
            raise fault from None
        except OSError as error:
            child.end()
            sentence = "the chat template needs too much for this chat: its process has ended"
            raise _LostError(invalid_field(FIELD, sentence)) from error
        self._idle.append(child)
        if self._closed:
            self.close()
        rendered = answer[:1] == RENDERED
        del answer[:1]
        return rendered, answer

    def _ready(self) -> "_Child":
        """A child that waits for a chat. The list's own methods are atomic."""
        with suppress(IndexError):
            while True:
                child = self._idle.pop()
                if child.alive:
                    return child
                child.end()
        return self._begun()

    def _begun(self) -> "_Child":
        """A new child.

        Raises:
            OSError: none can be started.
        """
        child = _Child()
        try:
            child.begin(self._first)
        except OSError:
            child.end()
            raise
        return child


def one_system_message(messages: Sequence[Any]) -> Sequence[Any]:
    """The messages with those of the system joined at the front, for templates that allow one there alone."""
    system = [message for message in messages if message["role"] == "system"]
    others = [message for message in messages if message["role"] != "system"]
    if not system or (len(system) == 1 and messages[0] is system[0]):
        return messages
    return [{"role": "system", "content": "\n\n".join(message["content"] for message in system)}, *others]


def _frame(messages: Sequence[Any], tools: Sequence[Any], arguments: Mapping[str, Any]) -> bytes:
    chat = {"messages": [*messages], "tools": [*tools], "arguments": arguments}
    try:
        return to_json(chat, inf_nan_mode="constants")
    except PydanticSerializationError:  # half a character, or nested deeper than it goes
        return json.dumps(chat).encode()


def _continued(text: str) -> str:
    """The prompt up to the end of the last message; a template that strips messages has stripped its blanks too."""
    at = text.rfind(MARK.strip())
    if at < 0:
        raise invalid_field("continue_final_message", "the chat template leaves the last message out")
    return text[:at] if text.startswith(MARK, at) else text[:at].rstrip()


class _LostError(Exception):
    """A child was lost by what need not be the chat's fault; `fault` is what to say if another one is too."""

    def __init__(self, fault: PacelineError) -> None:
        super().__init__(str(fault))
        self.fault = fault


class _Child:
    """The process and the socket to it; every wait has an end."""

    def __init__(self) -> None:
        """Starts it.

        Raises:
            OSError: the machine has no process or descriptor left.
        """
        self._ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "services.gateway.prompts.chat_child"],
                cwd=ROOT,
                env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    @property
    def alive(self) -> bool:
        """The process has not ended."""
        return self._process.poll() is None

    def computed_s(self) -> float:
        """Seconds of a processor that it has had; 0 when it has ended."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[_USER]) + int(fields[_USER + 1])) / os.sysconf("SC_CLK_TCK")

    def begin(self, first: bytes) -> None:
        """Sends the frame of the template and waits until it is compiled.

        Raises:
            TimeoutError: it was not in time.
            OSError: the process has ended.
        """
        begun = time.monotonic()
        self._ours.settimeout(START_S)
        send(self._ours, first)
        while not self._speaks(START_S / 10):
            waited_s = time.monotonic() - begun
            if waited_s > (START_S if self.computed_s() > BUSY * START_S else LONGEST_START_S):
                raise TimeoutError
        self._answer(time.monotonic() + START_S)

    def _speaks(self, within_s: float) -> bool:
        waiting = select.poll()
        waiting.register(self._ours, select.POLLIN)
        return bool(waiting.poll(within_s * 1000))

    def ask(self, content: bytes, limit_s: float) -> bytearray:
        """Sends a frame and waits for its answer.

        Raises:
            TimeoutError: there was none in time.
            OSError: the process has ended.
        """
        end = time.monotonic() + limit_s
        self._ours.settimeout(limit_s)
        send(self._ours, content)
        return self._answer(end)

    def _answer(self, end: float) -> bytearray:
        (length,) = LENGTH.unpack(self._read(LENGTH.size, end))
        return self._read(length, end)

    def end(self) -> None:
        """Kills it and leaves nothing of it."""
        self._ours.close()
        self._process.kill()
        self._process.wait()

    def _read(self, count: int, end: float) -> bytearray:
        found = bytearray()
        while len(found) < count:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._ours.settimeout(left)
            part = self._ours.recv(count - len(found))
            if not part:
                raise ConnectionResetError
            found += part
        return found


def load_chat_renderer(folder: Path) -> ChatRenderer | None:
    """The template of a checkpoint folder: chat_template.jinja, or the entry of tokenizer_config.json; None without.

    Raises:
        OSError, ValueError, jinja2.TemplateSyntaxError: a file cannot be read, or holds no template.
    """
    config = _config(folder)
    template_path = folder / "chat_template.jinja"
    named = config.get("chat_template")
    source = read_regular(template_path).decode() if template_path.exists() else _default_template(named)
    return ChatRenderer(source, _special_tokens(config)) if source else None


def load_special_tokens(folder: Path) -> dict[str, str]:
    """The special tokens that tokenizer_config.json names, by what they are for, such as eos_token.

    Raises:
        OSError, ValueError: the file cannot be read.
    """
    return _special_tokens(_config(folder))


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "tokenizer_config.json"
    config: dict[str, Any] = json.loads(read_regular(path)) if path.exists() else {}
    return config


def _default_template(entry: object) -> str | None:
    if isinstance(entry, list):
        return next((str(named["template"]) for named in entry if named.get("name") == "default"), None)
    return entry if isinstance(entry, str) else None


def _special_tokens(config: dict[str, Any]) -> dict[str, str]:
    found = {}
    for name in SPECIAL_TOKENS:
        value = config.get(name)
        content = value.get("content") if isinstance(value, dict) else value
        if isinstance(content, str):
            found[name] = content
    return found
